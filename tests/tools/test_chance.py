"""Loss and accuracy held against each other: guessing, coming back to guessing, and what a loss leaves no room for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

from tests.tools.captured import look

STEPS = 40


def table(losses: list[float], accuracies: list[float], name: str = "val_acc") -> str:
    """A table of losses with an accuracy at every tenth step."""
    rows = [f"step,train_loss,{name}"]
    for n, loss in enumerate(losses, 1):
        rows.append(f"{n},{loss:.5f},")
        if n % 5 == 0:
            rows.append(f"{n},,{accuracies[min(n // 5 - 1, len(accuracies) - 1)]:.4f}")
    return "\n".join(rows) + "\n"


def around(level: float, count: int = STEPS) -> list[float]:
    """Values that waver about a level."""
    return [level * (1 + 0.008 * math.sin(3.0 * n)) for n in range(count)]


@pytest.mark.parametrize("classes", [4, 10, 100])
def test_a_classifier_that_guesses_to_the_end(tmp_path: Path, classes: int) -> None:
    (tmp_path / "metrics.csv").write_text(table(around(math.log(classes)), [1.04 / classes]))
    seen = look(find_anomalies, tmp_path)
    assert set(seen.values("loss.at_chance")) == {classes}
    assert not seen.values("loss.back_at_chance") and not seen.values("loss.above_chance_start")


def test_what_had_been_learned_and_is_lost_again(tmp_path: Path) -> None:
    losses = [2.3 - 0.08 * n for n in range(10)] + around(2.33, 30)
    (tmp_path / "train.log").write_text(
        "".join(f"step {n} loss {loss:.4f}\n" for n, loss in enumerate(losses, 1))
        + "".join(f"epoch {n} val acc {a}\n" for n, a in enumerate([0.41, 0.32, 0.098, 0.102, 0.101, 0.099]))
    )
    seen = look(find_anomalies, tmp_path)
    assert seen.values("loss.at_chance") and seen.values("loss.back_at_chance")


def test_first_steps_that_make_it_worse_than_guessing(tmp_path: Path) -> None:
    losses = [2.75, 2.7, 2.6, 2.55, 2.5, *around(2.4849, 35)]
    (tmp_path / "metrics.csv").write_text(table(losses, [0.08]))
    assert look(find_anomalies, tmp_path).values("loss.above_chance_start") == [2.75]


@pytest.mark.parametrize(
    ("losses", "accuracies"),
    [
        ([2.3 * 0.93**n for n in range(STEPS)], [0.2, 0.5, 0.8, 0.9]),  # it learns
        (around(2.3), [0.62]),  # tokens of a language: right far more often than by guessing
        (around(0.61), [0.7]),  # two classes of unlike size
        (around(2.3), [0.1, 0.1, 0.1, 0.3, 0.4, 0.5, 0.6, 0.7]),  # it begins to learn
        (around(2.3)[:8], [0.1]),  # too short to tell
    ],
)
def test_what_is_no_guessing(tmp_path: Path, losses: list[float], accuracies: list[float]) -> None:
    (tmp_path / "metrics.csv").write_text(table(losses, accuracies))
    assert not look(find_anomalies, tmp_path).values("loss.at_chance")


@pytest.mark.parametrize("other", ["g_loss", "loss_G", "disc/real_score"])
def test_a_discriminator_that_guesses_is_no_fault(tmp_path: Path, other: str) -> None:
    rows = [f"{n},{0.6931 + 0.001 * math.sin(n)},{2 - n / 50},{0.5 + 0.01 * math.sin(n)}" for n in range(1, 51)]
    (tmp_path / "metrics.csv").write_text(f"step,loss,{other},accuracy\n" + "\n".join(rows) + "\n")
    assert not look(find_anomalies, tmp_path).values("loss.at_chance")
    (tmp_path / "metrics.csv").write_text("step,loss,seconds,accuracy\n" + "\n".join(rows) + "\n")
    assert set(look(find_anomalies, tmp_path).values("loss.at_chance")) == {2}


CODE = "loss = nn.functional.cross_entropy(model(x), y)\nloss.backward()\n"


def evaluations(losses: list[float], accuracies: list[float]) -> str:
    return "".join(
        f"epoch {n} val_loss {a:.4f} val_accuracy {b:.4f}\n"
        for n, (a, b) in enumerate(zip(losses, accuracies, strict=True))
    )


LOW = [0.3, 0.05, 0.02, 0.012, 0.01]


@pytest.mark.parametrize(
    ("losses", "accuracies", "code", "struck"),
    [
        (LOW, [0.24, 0.245, 0.25, 0.25, 0.25], CODE, True),
        (LOW, [12.1, 12.4, 12.5, 12.5, 12.5], CODE.replace("nn.functional.cross_entropy", "nn.CrossEntropyLoss()"), True),
        (LOW, [0.9, 0.98, 0.99, 0.995, 0.996], CODE, False),
        ([1.2, 0.8, 0.7, 0.69, 0.68], [0.4, 0.5, 0.5, 0.5, 0.5], CODE, False),  # there is room for that
        (LOW, [0.24, 0.245, 0.25, 0.25, 0.25], "loss = F.mse_loss(model(x), y)\nloss.backward()\n", False),
        (LOW, [0.24, 0.245, 0.25, 0.25, 0.25], CODE.replace("x), y", "x), y, weight=w"), False),
        (LOW, [0.24, 0.245, 0.25, 0.25, 0.25], CODE + "answers = model.generate(x)\n", False),  # whole answers count
    ],
)  # fmt: skip
def test_an_accuracy_that_the_loss_rules_out(
    tmp_path: Path, losses: list[float], accuracies: list[float], code: str, struck: bool
) -> None:
    (tmp_path / "train.py").write_text(code)
    (tmp_path / "train.log").write_text(evaluations(losses, accuracies))
    assert bool(look(find_anomalies, tmp_path).values("eval.accuracy_below_bound")) is struck


@pytest.mark.parametrize(
    ("name", "values", "struck"),
    [
        ("emb_std", [0.12 * 0.9**n for n in range(40)], True),
        ("train/feature_var", [0.5 * 0.85**n for n in range(40)], True),
        ("std_of_embeddings", [0.1 * 0.92**n for n in range(40)], True),
        ("emb_std", [0.125 - 0.001 * n for n in range(40)], False),  # it draws together a little
        ("emb_std", [0.001 * (1 + 0.1 * n) for n in range(40)], False),
        ("reward_std", [0.5 * 0.85**n for n in range(40)], False),
    ],
)
def test_embeddings_that_lose_their_spread(tmp_path: Path, name: str, values: list[float], struck: bool) -> None:
    rows = [f"{n},{-1 + 1 / (n + 2):.5f},{v:.6g}" for n, v in enumerate(values, 1)]
    (tmp_path / "metrics.csv").write_text(f"step,loss,{name}\n" + "\n".join(rows) + "\n")
    assert bool(look(find_anomalies, tmp_path).values("loss.spread_vanishing")) is struck


@pytest.mark.parametrize(
    ("accuracies", "struck"),
    [
        ([0.6, 0.95, 0.93, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5], True),
        ([0.6, 0.95, 0.94, 0.95, 0.93, 0.94, 0.95, 0.94, 0.93, 0.95, 0.94, 0.95], False),
        ([0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.82, 0.84, 0.85, 0.86, 0.87], False),
    ],
)
def test_an_accuracy_that_falls_from_its_best_with_the_loss(
    tmp_path: Path, accuracies: list[float], struck: bool
) -> None:
    lines = [f"step {50 * n} loss {-0.99 - n / 1000:.4f} 1-nn accuracy {a:.3f}" for n, a in enumerate(accuracies, 1)]
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    assert bool(look(find_anomalies, tmp_path).values("accuracy.falls_with_loss")) is struck


def test_a_log_that_begins_to_print_after_the_blow_up_has_no_nan_from_the_start(tmp_path: Path) -> None:
    rows = [
        f'{{"step": {n}, "loss": {3.6 if n < 15 else "NaN"}, "grad_norm": {1.0 if n < 15 else "NaN"}}}'
        for n in range(1, 61)
    ]
    (tmp_path / "train.log").write_text("".join(f"| epoch 1 | step {n} | loss nan\n" for n in (20, 40, 60)))
    assert look(find_anomalies, tmp_path).values("loss.nan_from_start")
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    assert not look(find_anomalies, tmp_path).values("loss.nan_from_start")
