"""Who took part, who failed first, who fell silent."""

from pathlib import Path
from typing import Any

from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.ranks_tools import rank_roster

TIMEOUT = "[rank{r}]:[E526 11:42:{s:02d}.2 ProcessGroupNCCL.cpp:632] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1)"


def roster(tmp_path: Path, **logs: str) -> ToolResult:
    for name, text in logs.items():
        (tmp_path / f"{name.replace('__', '-')}.log").write_text(text)
    return rank_roster(Workspace([tmp_path]))


def values(result: ToolResult, key: str) -> list[Any]:
    return [e.value for e in result.evidence if e.key == key]


def test_the_rank_that_says_nothing(tmp_path: Path) -> None:
    text = "Starting with 8 processes\n" + "\n".join(TIMEOUT.format(r=r, s=r) for r in range(1, 8)) + "\n"
    r = roster(tmp_path, train=text)
    assert values(r, "rank.world_size") == [8]
    assert values(r, "rank.missing") == [[0]]
    assert values(r, "rank.silent_while_others_fail") == [0]


def test_that_only_rank_zero_logs_is_usual(tmp_path: Path) -> None:
    r = roster(tmp_path, train="[2024-01-01 10:00:00,1] [INFO] [a.py:1:f] [Rank 0] world_size = 16\n[rank0]: step 1 loss 2\n")
    assert values(r, "rank.missing") == []
    assert r.outcome == "clean"


def test_a_gap_among_those_that_complain_without_a_world_size(tmp_path: Path) -> None:
    r = roster(tmp_path, train="\n".join(TIMEOUT.format(r=r, s=r) for r in (0, 1, 3, 4)) + "\n")
    assert values(r, "rank.silent_while_others_fail") == [2]


HEADED = "2023-06-02 21:47:33,012 INFO [trainer.py:706] ({r}/8) Epoch 1, batch 13300, loss=3.402\n"


def test_a_rank_and_the_world_in_brackets_behind_the_place_in_the_code(tmp_path: Path) -> None:
    r = roster(tmp_path, train="".join(HEADED.format(r=r) for r in range(8)))
    assert values(r, "rank.world_size") == [8] and values(r, "rank.seen") == [8]
    r = roster(tmp_path, train="".join(HEADED.format(r=8) for r in range(8)))
    assert values(r, "rank.seen") == [], "8/8 is a count"


def test_ranks_whose_logs_were_not_collected_are_not_silent(tmp_path: Path) -> None:
    logs = {f"log__train__{r}": HEADED.format(r=r) + TIMEOUT.format(r=r, s=r) + "\n" for r in (0, 3, 5, 6)}
    r = roster(tmp_path, **logs)
    assert "no log collected of ranks 1, 2, 4, 7" in r.text
    assert not values(r, "rank.missing") and not values(r, "rank.silent_while_others_fail")


def test_a_host_whose_log_just_stops(tmp_path: Path) -> None:
    r = roster(
        tmp_path,
        worker__a="rank 0 / world 2\nstep 300 loss 2.1\n",
        worker__b="rank 1 / world 2\nstep 300 loss 2.1\n[rank1]: ncclRemoteError: remote process exited or there was a network error\n",
    )
    (silent,) = [e for e in r.evidence if e.key == "rank.silent_while_others_fail"]
    assert (silent.value, silent.file, silent.line) == (0, "worker-a.log", 2)


def test_the_first_to_fail(tmp_path: Path) -> None:
    r = roster(
        tmp_path,
        rank0="2024-01-01 10:00:09 ERROR x: RuntimeError: late\n",
        rank1="2024-01-01 10:00:02 ERROR x: ValueError: early\n",
    )
    assert values(r, "rank.first_failed") == [1]


def test_one_or_all(tmp_path: Path) -> None:
    one = roster(tmp_path, rank0="step 1 loss 2\n", rank1="step 1 loss 2\nValueError: bad\n")
    assert values(one, "rank.only_one_failed") == [True]
    assert values(one, "rank.silent_while_others_fail") == []
    every = roster(tmp_path, rank0="ValueError: bad\n", rank1="ValueError: bad\n")
    assert values(every, "rank.all_same_error") == [True]


def test_steps_and_their_spread(tmp_path: Path) -> None:
    r = roster(tmp_path, rank0="step 100 loss 2\n", rank1="step 60 loss 2\n")
    assert sorted(values(r, "rank.last_seen_step")) == [60, 100]
    assert values(r, "rank.step_spread") == [40]


def test_a_single_process_has_no_roster(tmp_path: Path) -> None:
    assert roster(tmp_path, train="step 1 loss 2\n").outcome == "not_applicable"


def test_a_thousand_ranks_in_one_log(tmp_path: Path) -> None:
    text = "world_size: 1024\n" + "".join(
        f"[rank{r}]: step {s} loss 2.0\n" for s in range(20) for r in range(1024) if r != 77
    )
    r = roster(tmp_path, train=text)
    assert values(r, "rank.seen") == [1023]
    assert values(r, "rank.missing") == [[77]]
