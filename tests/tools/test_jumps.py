"""What stood before the first NaN: a climb over steps, one step that jumped, or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

LEVEL = [(2.2 + i % 3 / 50, 0.8 + i % 5 / 20) for i in range(60)]
NAN = [(float("nan"), float("nan"))] * 3
JUMP = [(48.2, 3120.0)]
CLIMB = [(2.4, 4.0), (3.1, 11.0), (5.7, 60.0), (19.0, 700.0)]


def keys(folder: Path, points: list[tuple[float, float]], every: int = 1) -> set[str]:
    lines = (
        f"step {i * every} loss {loss:.4f} grad_norm {norm:.3f} lr 1.0e-04" for i, (loss, norm) in enumerate(points, 1)
    )
    (folder / "train.log").write_text("\n".join(lines) + "\n")
    return {e.key for e in find_anomalies(Workspace([folder])).evidence if e.key.startswith("loss.nan_")}


@pytest.mark.parametrize(
    ("before", "expected"),
    [(JUMP, "loss.nan_after_jump"), (CLIMB, "loss.nan_after_ramp"), ([], "loss.nan_flat_before")],
)
def test_what_came_before_is_told_apart(before: list[tuple[float, float]], expected: str, tmp_path: Path) -> None:
    found = keys(tmp_path, [*LEVEL, *before, *NAN])
    assert found & {"loss.nan_after_jump", "loss.nan_after_ramp", "loss.nan_flat_before"} == {expected}


def test_between_steps_that_are_not_logged_a_climb_may_hide(tmp_path: Path) -> None:
    assert "loss.nan_after_ramp" in keys(tmp_path, [*LEVEL, *JUMP, *NAN], every=50)


@pytest.mark.parametrize(("first", "every", "early"), [(1, 1, True), (10, 10, True), (92677, 1, False), (500, 50, False)])
def test_a_log_that_takes_up_in_mid_run_has_no_first_steps(first: int, every: int, early: bool, tmp_path: Path) -> None:
    losses = [0.0213, 0.0221, float("nan")]
    lines = (f"step {first + every * i} loss {loss:.4f}" for i, loss in enumerate(losses))
    (tmp_path / "train.log").write_text("\n".join(lines) + "\n")
    found = {e.key for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert ("loss.nan_in_first_steps" in found) is early
