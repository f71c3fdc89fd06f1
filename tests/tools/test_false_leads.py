"""Facts that keep a playbook from leading where its signs are ordinary."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import KNOWLEDGE, read_folder
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.logs.failures import failures, user_frame
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.settings.settings_tools import read_settings
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import rank
from traindoctor.agent.verdict.salience import sentence

from tests.tools.captured import look


def lines(loss: list[float], rate: list[float]) -> str:
    return "".join(f"step {i} | loss {a:.4f} | lr {b:.3e}\n" for i, (a, b) in enumerate(zip(loss, rate, strict=True)))


LEAP = [3.0 - 0.02 * i for i in range(40)] + [9.0 + 0.01 * (i % 3) for i in range(20)]


def test_a_rate_of_zero_where_the_loss_leaps(tmp_path: Path) -> None:
    seen = look(find_anomalies, tmp_path, train_log=lines(LEAP, [1e-4] * 36 + [0.0] * 24))
    assert seen.values("loss.diverged") and seen.values("learning_rate.zero_at_rise")
    seen = look(find_anomalies, tmp_path, train_log=lines(LEAP, [1e-4] * 60))
    assert seen.values("loss.diverged") and not seen.values("learning_rate.zero_at_rise")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("opt = ScaledAdam(params, lr=0.045, clipping_scale=2.0)\n", True),
        ("opt = torch.optim.SGD(model.parameters(), lr=0.02)\n", True),
        ("opt = torch.optim.SGD(model.parameters(), lr=5.0)\n", False),
        ("opt = torch.optim.AdamW(model.parameters(), lr=0.02)\n", False),
    ],
)
def test_optimizers_whose_rates_are_large(tmp_path: Path, code: str, told: bool) -> None:
    seen = look(read_settings, tmp_path, train_py=code)
    assert bool(seen.values("settings.optimizer_of_large_rates")) is told


def test_rewards_that_never_differ(tmp_path: Path) -> None:
    row = "step {i} | reward {r} | kl 0.001 | pg_loss 0.0 | grad_norm 0.0\n"
    seen = look(find_anomalies, tmp_path, train_log="".join(row.format(i=i, r=0.0) for i in range(20)))
    assert seen.one("reward.constant") == 0
    seen = look(find_anomalies, tmp_path, train_log="".join(row.format(i=i, r=i % 5) for i in range(20)))
    assert not seen.values("reward.constant")


def test_a_console_script_is_nobodys_code(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/opt/env/bin/tune", line 8, in <module>\n    sys.exit(main())\n'
        '  File "/opt/env/lib/python3.11/site-packages/torchtune/run.py", line 4, in main\n    go()\n'
        "ValueError: nothing there\n"
    )
    (tmp_path / "train.log").write_text(text)
    (unit,) = failures(Workspace([tmp_path])).units
    assert user_frame(unit) is None
    (tmp_path / "train.log").write_text(text.replace("/opt/env/bin/tune", "/home/me/train.py"))
    (unit,) = failures(Workspace([tmp_path])).units
    assert user_frame(unit) is not None


def test_how_a_line_was_ranked_is_not_told() -> None:
    told = Evidence(id="E1", key="log.telling", value=3.59, text="loading weights", file="a.log", line=4)
    assert sentence(told).text == "a.log:4: \u201cloading weights\u201d"
    counted = Evidence(id="E2", key="grad_norm.max", value=3.5, text="grad_norm 3.5", file="a.log", line=5)
    assert "grad norm max 3.5" in sentence(counted).text


def test_lists_of_statistics_are_read_by_their_middle(tmp_path: Path) -> None:
    rows = [f"iter: {i:5d}, loss min|avg|max: 0.1|{2 - i / 50:.3f}| 9.5, batch-p@3: 4.1%\n" for i in range(40)]
    (tmp_path / "train.log").write_text("".join(rows))
    (loss,) = [s for s in curves(Workspace([tmp_path])).series if s.metric == "loss"]
    assert loss.stepped and len(loss) == 40
    assert loss.values[-1] == pytest.approx(2 - 39 / 50, abs=1e-3)


def test_a_loss_that_falls_to_the_logarithm_of_two_and_stays(tmp_path: Path) -> None:
    values = [2.0 - 0.1 * i for i in range(13)] + [0.693] * 40
    seen = look(find_anomalies, tmp_path, train_log="".join(f"step {i} loss {v:.3f}\n" for i, v in enumerate(values)))
    assert seen.one("loss.equals_ln") == 2
    values[13:] = [0.551] * 40
    seen = look(find_anomalies, tmp_path, train_log="".join(f"step {i} loss {v:.3f}\n" for i, v in enumerate(values)))
    assert not seen.values("loss.equals_ln")


VERL = "step:{i} - actor/pg_loss:0.1 - response_length/mean:{n} - timing_s/gen:{g} - timing_s/update_actor:{u} - timing_s/step:{t}\n"


@pytest.mark.parametrize(
    ("longer", "answers", "told"), [(True, 1800, True), (False, 1800, False), (True, None, False)]
)  # fmt: skip
def test_only_the_trainer_takes_longer(tmp_path: Path, longer: bool, answers: int | None, told: bool) -> None:
    rows = []
    for i in range(60):
        update = 90 + (2 * i if longer else i % 3)
        length = answers or 1000 + 20 * i
        rows.append(VERL.format(i=i, n=length + i % 5, g=140 + i % 4, u=update, t=update + 180))
    seen = look(find_anomalies, tmp_path, train_log="".join(rows), run_sh="train actor.expert_model_parallel_size=8\n")
    assert bool(seen.values("step_time.trainer_phase_growing")) is told
    assert bool(seen.values("expert.trainer_phase_growing")) is told
    assert bool(seen.values("step_time.growing")) is longer


def test_where_weights_are_read_is_not_where_they_are_written(tmp_path: Path) -> None:
    text = (
        "checkpointer:\n  _component_: torchtune.utils.FullModelHFCheckpointer\n"
        "  checkpoint_dir: /models/base\n  output_dir: /data/out\n"
    )
    seen = look(read_settings, tmp_path, resume_yaml=text)
    assert seen.values("settings.asked.output_dir") == ["/data/out"]
    assert seen.values("settings.asked.checkpoint_source") == ["/models/base"]


@pytest.mark.parametrize(("differs", "led"), [("precision", True), ("chat_template", False)])
def test_a_setting_that_all_variants_share_explains_no_difference(differs: str, led: bool) -> None:
    book = next(b for b in read_folder(KNOWLEDGE) if b.slug == "loss/fp16_overflow")
    shared = [
        Evidence(id="E1", key="lint.fp16_enabled", value="training in fp16", file="a.yaml", line=1),
        Evidence(id="E2", key="lint.fp16_with_bf16_model", value="fp16 of a bf16 model", file="a.yaml", line=2),
    ]
    (alone,) = rank([book], Facts.of(shared))
    other = Evidence(id="E3", key="compare.only_difference", value=differs, file="b.yaml", line=3)
    (weighed,) = rank([book], Facts.of([*shared, other]))
    assert (weighed.score >= alone.score) is led
