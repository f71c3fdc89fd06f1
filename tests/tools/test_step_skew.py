"""Stragglers in real Gloo trainings, in tables and in labelled logs."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.paces_tools import step_skew

from tests.jobs.supervised.started import left_by
from tests.tools.captured import Seen, look


@pytest.fixture(scope="session")
def trained() -> Path:
    return left_by("training", 3)


def seen(folder: Path) -> Seen:
    return Seen(step_skew(Workspace([folder])), folder)


def lost(found: Seen) -> float:
    """Seconds a step that the other ranks lose."""
    return float(re.findall(r"the others lose ([\d.]+) s a step", found.result.text)[0])


def test_a_rank_that_computes_longer(trained: Path) -> None:
    found = seen(trained / "slow_rank")
    assert set(found.values("skew.slow_rank")) == {1} and found.one("skew.persistent") > 0.7
    assert float(re.findall(r"slowest ([\d.]+) times", found.result.text)[0]) > 1.5
    assert found.values("skew.late_rank") == [1]  # the dumps say it too


def test_ranks_in_step_are_clean(trained: Path) -> None:
    """Three real ranks: where these share fewer processors, one may enter its collectives some milliseconds last."""
    found = seen(trained / "in_step")
    assert not found.values("skew.slow_rank") and found.result.text.count("none slow") >= 2
    if found.result.outcome != "clean":
        assert (os.cpu_count() or 1) < 3 and {e.key for e in found.evidence} == {"skew.late_rank"}


def test_another_rank_each_time(trained: Path) -> None:
    found = seen(trained / "in_turns")
    assert "another rank is slow each time" in found.result.summary and not found.values("skew.slow_rank")


def lines(times: dict[int, float], name: str = "step_time", count: int = 20) -> str:
    noise = random.Random(0)
    return "".join(
        f"[rank{rank}]: step={step} loss=2.0 {name}={seconds * (1 + noise.random() / 50):.4f}\n"
        for step in range(count) for rank, seconds in times.items()
    )  # fmt: skip


def test_labelled_lines_of_one_log(tmp_path: Path) -> None:
    found = look(step_skew, tmp_path, train_log=lines({0: 0.5, 1: 0.5, 2: 0.9, 3: 0.5}))
    assert found.values("skew.slow_rank") == [2] and lost(found) == pytest.approx(0.4, abs=0.05)


def test_a_table_with_a_column_rank(tmp_path: Path) -> None:
    rows = [f"{s},{r},{2 - s / 100},{180 if r == 1 else 100}" for s in range(20) for r in range(3)]
    found = look(step_skew, tmp_path, times_csv="step,rank,loss,compute_ms\n" + "\n".join(rows) + "\n")
    assert found.values("skew.slow_rank") == [1] and lost(found) == pytest.approx(0.08)


def test_who_waits_least_is_slow(tmp_path: Path) -> None:
    found = look(step_skew, tmp_path, train_log=lines({0: 0.30, 1: 0.02, 2: 0.31}, "allreduce_time"))
    assert found.values("skew.slow_rank") == [1]


def test_all_slow_ranks_on_one_host(tmp_path: Path) -> None:
    for rank in range(4):
        folder = tmp_path / f"node{rank // 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"rank_{rank}.log").write_text(lines({rank: 0.9 if rank < 2 else 0.5}))
    found = seen(tmp_path)
    assert not found.values("skew.slow_rank") or found.values("skew.slow_host")
    for rank in (4, 5, 6, 7):
        folder = tmp_path / f"node{rank // 2}"
        folder.mkdir(exist_ok=True)
        (folder / f"rank_{rank}.log").write_text(lines({rank: 0.5}))
    found = seen(tmp_path)
    assert sorted(found.values("skew.slow_rank")) == [0, 1] and found.one("skew.slow_host") == "node0"


def test_one_rank_alone_is_nothing_to_compare(tmp_path: Path) -> None:
    assert look(step_skew, tmp_path, train_log=lines({0: 0.5})).result.outcome == "not_applicable"


def test_a_few_odd_values_do_not_make_a_straggler(tmp_path: Path) -> None:
    log = lines({0: 0.5, 1: 0.5, 2: 0.5}).splitlines()
    log[10] = "[rank1]: step=3 loss=2.0 step_time=nan"
    log[20] = "[rank2]: step=6 loss=2.0 step_time=99999999999999999999"
    log[25] = "[rank1]: step=8 loss=2.0 step_time=-4"
    assert not look(step_skew, tmp_path, train_log="\n".join(log)).values("skew.slow_rank")


def test_a_slow_rank_of_the_first_attempt_is_told_though_the_second_is_even(tmp_path: Path) -> None:
    for attempt, slow in (("attempt_0", 0.9), ("attempt_1", 0.5)):
        for rank in range(2):
            folder = tmp_path / attempt
            folder.mkdir(exist_ok=True)
            (folder / f"rank_{rank}.log").write_text(lines({rank: slow if rank else 0.5}))
    found = seen(tmp_path)
    assert found.values("skew.slow_rank") == [1]


def test_few_steps_are_enough_where_all_say_the_same(tmp_path: Path) -> None:
    clear = look(step_skew, tmp_path, train_log=lines({0: 0.2, 1: 0.2, 2: 0.9}, count=4))
    assert clear.values("skew.slow_rank") == [2]
    near = look(step_skew, tmp_path, train_log=lines({0: 0.2, 1: 0.2, 2: 0.26}, count=4))
    assert near.result.outcome == "not_applicable"
