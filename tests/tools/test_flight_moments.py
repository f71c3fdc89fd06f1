"""Flight-recorder dumps that were not written at one moment, or not by all ranks: real ones of Gloo with two groups."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.collectives.flight_recorder import flight_recorder

from tests.tools.captured import Seen

RECORDED = Path(__file__).parents[2] / "evals" / "recorded"


def seen(folder: Path) -> Seen:
    return Seen(flight_recorder(Workspace([folder])), folder)


def copied(name: str, to: Path) -> Path:
    return Path(shutil.copytree(RECORDED / name / "files" / "flight", to / "flight"))


def test_dumps_taken_one_after_another_of_a_run_that_goes_on_agree(tmp_path: Path) -> None:
    found = seen(copied("sisal", tmp_path))
    assert found.one("flight.agree") is True and not found.values("flight.rank_behind")


def test_who_enters_nothing_more_is_behind_although_its_dump_looks_like_an_older_one(tmp_path: Path) -> None:
    found = seen(copied("hemp", tmp_path))
    assert found.values("flight.rank_behind") == [1] and found.one("flight.behind_by") == 1


@pytest.mark.parametrize("more", [1, 3])
def test_what_has_ended_proves_nothing_of_a_rank_while_it_is_the_last_that_was_entered(
    more: int, tmp_path: Path
) -> None:
    """Gloo retires what failed as it retires what ended: only with more after it on the same rank has it ended."""
    folder = copied("sisal", tmp_path)
    dumps = {r: pickle.loads((folder / f"nccl_trace_rank_{r}").read_bytes()) for r in range(3)}
    ended = len(dumps[0]["entries"])
    for rank in (1, 2):
        dumps[rank]["entries"] = dumps[rank]["entries"][: ended + more]
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(dumps[rank]))
    late = seen(folder).values("flight.rank_behind")
    assert (0 in late) is (more == 1)


def test_a_rank_without_a_dump_is_missed_though_no_dump_lists_the_ranks(tmp_path: Path) -> None:
    found = seen(copied("kenaf", tmp_path))
    assert found.values("flight.missing_rank") == [1] and not found.values("flight.all_entered")


def test_dumps_without_an_entry_say_nothing(tmp_path: Path) -> None:
    found = seen(copied("jute", tmp_path))
    assert found.result.outcome == "clean" and not found.result.evidence and "no entry" in found.result.summary
