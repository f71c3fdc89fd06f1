"""Evaluation sets that part ways, and a rate that is zero for much of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

from tests.tools.captured import look

RISES = [2.0, 2.2, 2.4, 2.7, 2.9, 3.0]
FALLS = [1.6, 1.5, 1.4, 1.3, 1.25, 1.2]
TURNS = [2.0, 1.6, 1.4, 1.7, 2.1, 2.6]  # overfitting


def history(**sets: list[float]) -> str:
    rows = [
        {"step": 10 * (i + 1), "epoch": float(i), name: value}
        for i in range(6)
        for name, value in ((name, values[i]) for name, values in sets.items())
    ]
    return json.dumps({"global_step": 60, "log_history": rows}, indent=1)


@pytest.mark.parametrize(
    ("sets", "lost"),
    [
        ({"eval_code_loss": FALLS, "eval_chat_loss": RISES}, ["chat"]),
        ({"eval_a_loss": FALLS, "eval_b_loss": FALLS}, []),
        ({"eval_a_loss": TURNS, "eval_b_loss": TURNS}, []),  # both turn: too many epochs
        ({"eval_a_loss": FALLS, "eval_b_loss": TURNS}, []),  # one of them turns
        ({"eval_a_loss": RISES, "eval_b_loss": RISES}, []),  # nothing gets better
        ({"eval_loss": RISES, "eval_runtime": FALLS}, []),
    ],
)
def test_a_set_that_is_lost_while_another_gains(sets: dict[str, list[float]], lost: list[str], tmp_path: Path) -> None:
    (tmp_path / "trainer_state.json").write_text(history(**sets))
    assert look(find_anomalies, tmp_path).values("eval.set_lost") == lost


def test_sets_in_json_lines_under_other_names(tmp_path: Path) -> None:
    rows = [
        json.dumps({"step": 10 * i, "loss": a, "val/ppl/law": a, "val/ppl/news": b})
        for i, (a, b) in enumerate(zip(FALLS, RISES, strict=True), 1)
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    seen = look(find_anomalies, tmp_path)
    assert seen.values("eval.set_lost") == ["news"] and seen.values("eval.set_lost_ratio") == [1.5]


@pytest.mark.parametrize(
    ("rates", "share"),
    [
        ([1e-3 * (10 - i) / 10 for i in range(10)] + [0.0] * 30, [0.75]),
        ([1e-3 * (40 - i) / 40 for i in range(40)], []),  # decays over the whole run
        ([0.0002] * 10 + [0.0001] * 10 + [0.0] * 20, []),  # four decimals: the end of a decay, not zero
    ],
)
def test_a_rate_of_zero_for_much_of_the_run(rates: list[float], share: list[float], tmp_path: Path) -> None:
    rows = [json.dumps({"step": i, "loss": 2.0 - i / 100, "lr": rate}) for i, rate in enumerate(rates, 1)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    assert look(find_anomalies, tmp_path).values("learning_rate.zero_share") == share
