"""Facts that keep a playbook from leading where its signs are ordinary."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.failures import failures
from traindoctor.agent.reading.phases import user_frame
from traindoctor.agent.tools.anomalies import find_anomalies
from traindoctor.agent.tools.settings import read_settings
from traindoctor.agent.types import Evidence
from traindoctor.agent.wording import sentence
from traindoctor.agent.workspace import Workspace

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
