"""Spans of collectives in torch's table, a rank that the others wait for by labels of its own, parts in one folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.curves.paces_tools import step_skew
from traindoctor.agent.tools.time.profiles_tools import training_profile
from traindoctor.agent.tools.weights.checkpoint_tools import list_checkpoints

from tests.tools.captured import look

RULE = "-----------------------  ------------  ------------  ------------  ------------  ------------\n"
HEAD = f"{RULE}Name  Self CPU %  Self CPU  CPU total %  CPU total  # of Calls\n{RULE}"


def profile(span: str, own: str = "1.000s") -> str:
    return f"{HEAD}gloo:all_reduce  0.00%  0.000us  0  {span}  32\naten::mm  36.0%  460.3ms  36.0%  460.4ms  240\n{RULE}Self CPU time total: {own}\n"


@pytest.mark.parametrize(("span", "share"), [("3.000s", 0.75), ("250.0ms", 0.2), ("10.0us", 0.0)])
def test_a_collective_outside_of_any_thread_has_its_share(span: str, share: float, tmp_path: Path) -> None:
    seen = look(training_profile, tmp_path, train_log=profile(span))
    assert max(seen.values("profile.communication_fraction")) == pytest.approx(share, abs=1e-3)


def test_the_rank_that_waits_least_is_the_slow_one(tmp_path: Path) -> None:
    waits = {0: 300, 1: 310, 2: 12, 3: 295}
    logs = {
        f"rank{r}_log": "".join(
            f"step {i} loss 0.5 | compute 3 ms | all-reduce {ms + i % 3} ms\n" for i in range(1, 14)
        )
        for r, ms in waits.items()
    }
    seen = look(step_skew, tmp_path, **logs)
    assert seen.values("skew.slow_rank") == [2] and "lose 0." in seen.result.text


def test_parts_that_lie_side_by_side_are_not_missing(tmp_path: Path) -> None:
    for rank in range(3):
        (tmp_path / f"mp_rank_{rank:02d}.pt").write_bytes(b"\x80\x02}q\x00.")
    assert not look(list_checkpoints, tmp_path).values("checkpoint.missing_shard")
    (tmp_path / "mp_rank_00.pt").unlink()
    assert set(look(list_checkpoints, tmp_path).values("checkpoint.missing_shard")) <= {"mp_rank_00.pt"}
