"""Who wrote from when to when, and who failed first, as the logs of a run tell it."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.report import FirstFailure, Report, RootCause
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.telling.views.timeline import Fold, Lane, Timeline, folds, stretches, timeline
from traindoctor.agent.telling.views.timeline_spans import duration

DEMO = Path(__file__).resolve().parents[3] / "evals" / "demo" / "files"
WATCHDOG = (
    "[rank{r}]:[E304 02:53:50.{ms:03d}000 ProcessGroupNCCL.cpp:629] [Rank {r}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=1, Timeout(ms)=600000) ran for 600000 milliseconds"
)


def read(root: Path, first: FirstFailure | None = None) -> Timeline:
    report = Report(status="likely", root_cause=RootCause(id="x.y", first_failure=first)) if first else None
    return timeline(Workspace([root], live=False), report)


def written(root: Path, **logs: list[str]) -> Path:
    for name, lines in logs.items():
        path = root / (name.replace("__", "/") + ".log")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n")
    return root


def by_name(line: Timeline) -> dict[str, Lane]:
    return {lane.name: lane for lane in line.lanes}


def test_the_silent_rank_comes_before_those_that_complain() -> None:
    line = read(DEMO)
    lanes = by_name(line)
    assert line.axis.basis == "time" and line.axis.ends == ("02:40:19", "13 min 32 s", "02:53:51")
    assert lanes["rank 5"].state == "silent" and lanes["rank 5"].order == 1
    assert {lane.state for name, lane in lanes.items() if name != "rank 5"} == {"complained"}
    assert [f.name for f in folds(line)][:2] == ["rank 5", "rank 7"]
    assert [f.name for f in folds(line, "rank")] == [f"rank {r}" for r in range(8)]
    assert [f.lead.step for f in folds(line, "last step")] == sorted(lane.step or 0 for lane in line.lanes)
    assert lanes["rank 7"].trouble is not None and lanes["rank 7"].trouble.line == 6
    assert "torchrun.log" in " ".join(line.notes)


def test_the_first_failure_is_the_one_of_the_report() -> None:
    line = read(DEMO, FirstFailure(rank=2, time="2026-03-04T02:50:00"))
    lane = by_name(line)["rank 2"]
    assert (lane.state, lane.order) == ("first", 1) and line.axis.ends[0] == "02:40:19"
    assert lane.struck is not None
    assert line.axis.share(lane.struck) == pytest.approx((9 * 60 + 41) / (13 * 60 + 32), abs=0.01)
    assert by_name(line)["rank 5"].order == 2
    gone = read(DEMO, FirstFailure(rank=99))
    assert by_name(gone)["rank 99"].state == "first" and "no log" in " ".join(gone.notes)
    assert not [x for x in read(DEMO, FirstFailure()).lanes if x.state == "first"]


def test_of_a_thousand_ranks_the_odd_ones_stand_apart_on_top(tmp_path: Path) -> None:
    logs = {}
    for r in range(1024):
        rows = [f"2026-03-04 02:40:00.{r % 1000:03d} [INFO] rank {r} of 1024"]
        rows += [f"2026-03-04 02:4{k}:00.{r % 1000:03d} [INFO] step {4008 + k} loss 2.3" for k in range(4)]
        logs[f"rank{r}"] = rows[:2] if r == 700 else rows[:3] if r == 7 else [*rows, WATCHDOG.format(r=r, ms=r % 1000)]
    del logs["rank300"]
    line = read(written(tmp_path, **logs))
    found = folds(line)
    assert [f.name for f in found] == ["rank 700", "rank 7", "rank 300", "ranks 0-6, 8-299, 301-699, 701-1023"]
    assert [f.lead.state for f in found] == ["silent", "silent", "unseen", "complained"]
    assert found[-1].steps == (4011, 4011) and [len(f.lanes) for f in found] == [1, 1, 1, 1021]


def test_ranks_that_label_one_log_have_their_own_first_and_last_lines(tmp_path: Path) -> None:
    rows = [f"[rank{r}]: 2026-03-04 02:40:{k:02d} INFO step {k} loss 1.0" for k in range(30) for r in range(4)
            if r != 2 or 5 <= k < 20]  # fmt: skip
    lanes = by_name(read(written(tmp_path, train=rows)))
    assert (lanes["rank 2"].step, lanes["rank 0"].step) == (19, 29)
    begin, other = lanes["rank 2"].begin, lanes["rank 0"].begin
    assert begin is not None and other is not None and begin - other == 5
    assert rows[lanes["rank 2"].last_line - 1].startswith("[rank2]: 2026-03-04 02:40:19")


def test_attempts_of_one_log_are_rows_of_their_own(tmp_path: Path) -> None:
    def attempt(hour: int, steps: range) -> list[str]:
        head = f"2026-03-04 {hour:02d}:00:00 INFO torch.distributed.run: Starting elastic_operator, restart"
        return [head, *(f"2026-03-04 {hour:02d}:{k % 60:02d}:30 INFO step {k} loss 2.0" for k in steps)]

    root = Path(__file__).resolve().parents[3] / "evals" / "incidents" / "ckpt-reboot-at-25671" / "files"
    line = read(root)
    assert [(x.name, x.attempt, x.step) for x in line.lanes] == [("train.log", 1, 25671), ("train.log", 2, 62000)]
    assert line.lanes[0].last_line + 1 == line.lanes[1].first_line and line.axis.basis == "step"
    assert "not by time" in line.axis.why
    split = read(written(tmp_path, attempt_1__rank0=attempt(1, range(5)), attempt_2__rank0=attempt(2, range(9))))
    assert [(x.name, x.attempt, x.step) for x in split.lanes] == [("rank 0", 1, 4), ("rank 0", 2, 8)]


@pytest.mark.parametrize(("rows", "basis", "says"), [
    (["training starts", "it trains"], "none", "not known: no stamps"),
    (["[   12.345678] boot", "[  400.000001] up"], "none", "since boot of several hosts"),
    (["23:59:50 step 1 loss 2", "00:00:10 step 2 loss 2"], "time", "Times of day only"),
])  # fmt: skip
def test_what_cannot_be_compared_is_said(tmp_path: Path, rows: list[str], basis: str, says: str) -> None:
    line = read(written(tmp_path, rank0=rows, rank1=rows))
    assert line.axis.basis == basis and says in " ".join(line.notes)
    if basis == "time":
        assert line.axis.ends[1] == "20 s"


def test_ranks_of_which_nothing_is_there(tmp_path: Path) -> None:
    head = "2026-03-04 02:40:00 INFO world_size: {world} step 1 loss 2"
    few = read(written(tmp_path / "few", rank0=[head.format(world=64)]))
    assert [x.name for x in few.lanes] == ["rank 0"] and "63 of 64 ranks write no line" in " ".join(few.notes)
    most = read(written(tmp_path / "most", **{f"rank{r}": [head.format(world=8)] for r in range(6)}))
    assert [x.name for x in most.lanes if x.state == "unseen"] == ["rank 6", "rank 7"]
    assert "not among the files" in " ".join(most.notes)


def test_what_a_shared_log_says_without_a_label_is_of_no_rank(tmp_path: Path) -> None:
    labelled = [f"[rank{r}]: 2026-03-04 02:40:0{k} INFO step {k} loss 1.0" for k in range(5) for r in range(2)]
    gone = ["2026-03-04 02:41:00 ERROR: failed (exitcode: -9) local_rank: 0 (pid: 17) of binary: python"]
    line = read(written(tmp_path, train=[*labelled, *gone], notes=["a text beside the log"]))
    assert {x.name: x.state for x in line.lanes} == {"rank 0": "quiet", "rank 1": "quiet"}
    alone = read(written(tmp_path / "alone", train=["2026-03-04 02:41:00 step 1 loss 2"], notes=["a text beside it"]))
    assert [x.name for x in alone.lanes] == ["train.log"]


def test_logs_that_are_gone_make_no_row(tmp_path: Path) -> None:
    root = written(tmp_path, rank0=["2026-03-04 02:40:00 step 1"])
    ws = Workspace([root], live=False)
    (root / "rank0.log").unlink()
    line = timeline(ws)
    assert line.lanes == [] and "No log" in line.notes[0]


def test_words_for_lengths_and_stretches() -> None:
    assert [duration(s) for s in (0.25, 59, 60, 812, 7260, 200_000)] == [
        "0.2 s", "59 s", "1 min", "13 min 32 s", "2 h 1 min", "2 d 7 h"
    ]  # fmt: skip
    assert stretches([5, 0, 1, 2, 9, 8]) == "0-2, 5, 8-9"
    assert Fold((Lane("a", host="a"), Lane("b", host="b"))).name == "2 logs"
