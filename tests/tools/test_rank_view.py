"""One rank from every side; a rank that was never seen is said to be so."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.types import Evidence, ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.ranks_tools import look_at_rank
from traindoctor.agent.verdict.gate import verified

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, files: dict[str, str]) -> Workspace:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Workspace([folder], live=False)


def look(ws: Workspace, rank: int) -> ToolResult:
    """The result; every line it quotes stands where it says."""
    result = look_at_rank(ws, rank=rank)
    assert verified(result.evidence, ws)[1] == 0
    return result


def found(result: ToolResult, name: str) -> list[Evidence]:
    return [e for e in result.evidence if e.key == f"rank_view.{name}"]


STEPS = "".join(f"2026-03-04 02:0{n}:00 step {n} loss 2.{n}\n" for n in range(1, 6))
FAILS = """2026-03-04 02:06:00 step 6 loss 2.1
Traceback (most recent call last):
  File "train.py", line 40, in <module>
    loss.backward()
RuntimeError: CUDA error: an illegal memory access was encountered
"""
WAITS = (
    STEPS
    + "2026-03-04 02:16:00 step 9 loss 1.9\n[Rank 0] Watchdog caught collective operation timeout: rank 2 did not join\n"
)


@pytest.fixture
def ranks(tmp_path: Path) -> Workspace:
    """Rank 0 complains of rank 2, rank 1 fails, rank 2 stops early."""
    return run(tmp_path, {"rank0.log": WAITS, "rank1.log": STEPS + FAILS, "rank2.log": STEPS})


def test_a_rank_that_failed(ranks: Workspace) -> None:
    result = look(ranks, 1)
    failure = found(result, "failure")[0]
    assert result.outcome == "finding" and "illegal memory access" in result.summary
    assert (failure.file, failure.rank) == ("rank1.log", 1) and "illegal memory access" in failure.text
    assert found(result, "frame")[0].text.strip() == "loss.backward()"
    assert {e.file for e in found(result, "last_line")} == {"rank1.log"} and len(found(result, "last_line")) == 6


def test_a_rank_that_stopped_early_is_named_by_others(ranks: Workspace) -> None:
    result = look(ranks, 2)
    assert found(result, "last_step")[0].value == 5
    assert found(result, "furthest_other_step")[0].value == 9
    assert "stopped at step 5, others came to 9" in result.summary
    assert [e.file for e in found(result, "named_by_others")] == ["rank0.log"]
    assert not found(result, "failure")


def test_a_rank_of_a_shared_log_has_its_own_lines_only(tmp_path: Path) -> None:
    log = "".join(f"[rank{r}]: step {s} loss 1.{r}\n" for s in range(3) for r in range(4))
    result = look(run(tmp_path, {"train.log": log + "[rank3]: RuntimeError: CUDA error: device-side assert\n"}), 3)
    assert all("[rank3]" in e.text for e in found(result, "last_line")) and len(found(result, "last_line")) == 4
    assert found(result, "failure")[0].line == 13
    sound = look(Workspace([tmp_path], live=False), 1)
    assert not found(sound, "failure") and all("[rank1]" in e.text for e in found(sound, "last_line"))


def test_a_rank_that_was_never_seen(tmp_path: Path) -> None:
    ws = run(tmp_path, {"rank0.log": "world_size: 4\n" + STEPS, "rank1.log": STEPS})
    silent, none = look(ws, 3), look(ws, 9)
    assert "never seen" in silent.summary and "one of the silent" in silent.summary
    assert "none of this number" in none.summary
    for result in (silent, none):
        absent = found(result, "seen")[0]
        assert absent.kind == "absent" and "rank0.log" in (absent.searched or [])
        assert found(result, "world_size")[0].line == 1


def test_a_pace_is_held_against_the_others(tmp_path: Path) -> None:
    files = {
        f"rank{r}.log": "".join(f"step {s} loss 2.0 step_time {1.0 if r != 2 else 3.0:.2f}\n" for s in range(1, 12))
        for r in range(4)
    }
    result = look(run(tmp_path, files), 2)
    assert "step time is 3.00 times that of the others" in result.summary
    assert found(result, "step_time")[0].value == {"own": 3.0, "others": 1.0}
    assert look(Workspace([tmp_path], live=False), 1).outcome == "clean"


def test_a_recorded_stack_of_the_rank(tmp_path: Path) -> None:
    stack = 'Process 100: python train.py\nPython v3.11\n\nThread 100 (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:2501)\n    train (train.py:88)\n'
    ws = run(tmp_path, {"stack_rank1.txt": stack, "rank0.log": STEPS, "rank1.log": STEPS})
    stands = found(look(ws, 1), "stack")
    assert stands and stands[0].file == "stack_rank1.txt" and stands[0].rank == 1
    assert not found(look(ws, 0), "stack")


def test_nothing_to_look_in(tmp_path: Path) -> None:
    assert look(run(tmp_path, {"config.yaml": "learning_rate: 1\n"}), 0).outcome == "not_applicable"


@pytest.mark.parametrize(
    "name", ["data-seven-ranks-complain", "dist-elastic-async-exception", "memory-gemma2-9b-squad-step10"]
)
def test_real_runs_by_rank(name: str) -> None:
    ws = Workspace([ROOT / "evals" / "incidents" / name / "files"], live=False)
    for rank in range(9):
        result = look(ws, rank)
        assert result.outcome in ("finding", "clean") and result.evidence
