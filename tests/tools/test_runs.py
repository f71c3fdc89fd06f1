"""A failed run beside a good one: what is new in it, what never came, what was set otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.run.lines import template_of
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.logs.runs_tools import compare_runs

STEP = "2026-01-01 10:{m:02d}:{s:02d} INFO step {i} loss {loss:.4f} step_time {time} grad_norm 1.0\n"


def write(folder: Path, *, good: bool) -> Path:
    folder.mkdir()
    lines = ["2026-01-01 10:00:00 INFO Starting on 8 GPUs, pid 4711\n"]
    lines += ["2026-01-01 10:00:01 INFO reset prefix cache after weight update\n"] if good else []
    lines += [STEP.format(m=i // 60, s=i % 60, i=i, loss=2 - i / 200, time=0.9 if good else 1.2) for i in range(200)]
    lines += ["2026-01-01 10:09:00 INFO Training finished\n"] if good else [
        "2026-01-01 10:05:00 INFO Using network Socket\n", "RuntimeError: NCCL communicator was aborted on rank 3\n"]  # fmt: skip
    (folder / "train.log").write_text("".join(lines))
    (folder / "config.yaml").write_text(f"learning_rate: {1e-4 if good else 1e-3}\nbatch_size: 8\n")
    (folder / "train.jsonl").write_text('{"prompt": "a", "completion": "b"}\n' * (40 if good else 4))
    return folder


def test_a_failed_run_beside_a_good_one(tmp_path: Path) -> None:
    bad, good = write(tmp_path / "bad", good=False), write(tmp_path / "good", good=True)
    result = compare_runs(Workspace([bad], good=[good]))
    rows = result.text.splitlines()
    new = [row for row in rows if row.startswith("new: r1/train.log:")]
    assert [row.split(" INFO ")[-1].partition("x) ")[2] or row.split(" INFO ")[-1] for row in new] == [
        "RuntimeError: NCCL communicator was aborted on rank 3", "Using network Socket"]  # fmt: skip
    missing = [row.split(" INFO ")[-1] for row in rows if row.startswith("missing: ")]
    assert missing == ["reset prefix cache after weight update", "Training finished"]
    differs = [row.removeprefix("differs: ") for row in rows if row.startswith("differs: ")]
    assert differs[0].startswith("learning_rate: ") and differs[1] == "by its curves this run came out worse"
    assert differs[2].startswith("step_time: 1.333 times that of the good")
    assert "train.jsonl: " in differs[-1] and result.evidence == []


def test_two_runs_alike(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a", good=True), write(tmp_path / "b", good=True)
    result = compare_runs(Workspace([first], good=[second]))
    assert result.outcome == "clean" and not result.evidence


def test_without_a_good_run(tmp_path: Path) -> None:
    result = compare_runs(Workspace([write(tmp_path / "a", good=False)]))
    assert result.outcome == "not_applicable" and "--good" in result.summary


def test_from_the_command_line(doctor: Any, tmp_path: Path) -> None:
    bad, good = write(tmp_path / "bad", good=False), write(tmp_path / "good", good=True)
    done = doctor("tool", "compare-runs", bad, "--good", good)
    assert done.returncode == 0 and "new: r1/train.log:203" in done.stdout


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"[rank3]: step 10 took 3.2 s", b"[rank5]: step 900 took 0.1 s"),
        (b"2026-01-01 10:00:00 INFO saved to /data/a/b/c.pt", b"2026-02-01 11:00:00 INFO saved to /mnt/x/y.pt"),
        (b"allocated at 0x7ffe12", b"allocated at 0x55aa"),
    ],
)
def test_lines_of_one_kind(one: bytes, other: bytes) -> None:
    assert template_of(one) == template_of(other) != ""


@given(st.binary(max_size=2000))
def test_any_bytes_have_a_kind(line: bytes) -> None:
    assert isinstance(template_of(line.replace(b"\n", b"")), str)
