"""A state folder with sessions of every kind, and folders beside it that look like runs: for the tests of the lists."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Interrupt
from traindoctor.agent.core.report import RootCause, RunSummary
from traindoctor.agent.session.store import ROOTS, save_report

from tests.sample import HOSTILE, sample

NOW = 1_772_600_000.0  # 2026-03-04 04:53:20 UTC
HOUR = 3600.0


def keep(state: Path, session: str, age: float, root: Path | None, **changes: Any) -> Path:
    """A finished session that ended `age` hours ago."""
    runs = [RunSummary(id="r1", root=str(root), state="died")] if root else []
    path = save_report(state, sample(session=session, runs=runs, **changes))
    if root and not root.is_absolute():  # as given, for pictures: they may not hold a path of today
        (path.parent / session / ROOTS).write_text(json.dumps([[str(root), False, str(root)]]))
    os.utime(path, (NOW - age * HOUR, NOW - age * HOUR))
    return path


def leave(state: Path, session: str, question: str, stamp: str, calls: list[dict[str, Any]] | None = None) -> None:
    """A session that has steps and no report, as the checkpointer writes them; left at an approval where calls are named."""
    with sqlite3.connect(state / "sessions.sqlite") as base:
        base.execute(
            "CREATE TABLE IF NOT EXISTS checkpoints (thread_id TEXT, checkpoint_ns TEXT DEFAULT '', checkpoint_id TEXT,"
            " parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB, metadata BLOB)"
        )
        base.execute(
            "CREATE TABLE IF NOT EXISTS writes (thread_id TEXT, checkpoint_ns TEXT DEFAULT '', checkpoint_id TEXT,"
            " task_id TEXT, task_path TEXT DEFAULT '', idx INTEGER, channel TEXT, type TEXT, value BLOB)"
        )
        step = ormsgpack.packb({"ts": stamp, "channel_values": {"question": question}})
        base.execute("INSERT INTO checkpoints VALUES (?, '', 's1', NULL, 'msgpack', ?, x'')", (session, step))
        if calls:
            kind, value = JsonPlusSerializer().dumps_typed([Interrupt(value={"calls": calls}, id="i")])
            row = (session, "s1", "t", 0, "__interrupt__", kind, value)
            base.execute("INSERT INTO writes VALUES (?, '', ?, ?, '', ?, ?, ?, ?)", row)


def every_kind(folder: Path) -> tuple[Path, Path]:
    """A state folder and a folder with runs: sessions that are confirmed, answered, gone, old, damaged, begun, hostile."""
    state, here = folder / "state", folder / "work"
    (state / "reports").mkdir(parents=True)
    run = a_run(here / "exp42")
    a_run(here / "sweeps" / "lr3e-4", hours=30)
    left = here / "exp42" / "doctor-report.json"
    left.write_text(sample(session="20260303-000000-job", question="Why did job 4711 die?").to_json())
    os.utime(left, (NOW - 26 * HOUR, NOW - 26 * HOUR))
    keep(state, "20260304-031500-a1b2c3", 0.2, run)
    keep(state, "20260304-011500-b2c3d4", 3, folder / "gone", status="likely", question="Why does it hang since 2 a.m.?",
         root_cause=RootCause(id="dist.collective_desync_or_deadlock", title="Hang", confidence=0.6))  # fmt: skip
    keep(state, "20260303-011500-c3d4e5", 30, None, status="answer", question="What does exit code 137 mean?",
         root_cause=RootCause(id=None, title="Exit code 137"), evidence=[], summary=[], chain=[], differential=[],
         also=[], fixes=[], patches=[])  # fmt: skip
    keep(state, "20260302-011500-d4e5f6", 60, run, question=HOSTILE, root_cause=RootCause(id=None, title=HOSTILE))
    for name, text in (("20250101-000000-old", '{"schema": "traindoctor.report/0"}'), ("20250102-000000-bad", "{")):
        path = state / "reports" / f"{name}.json"
        path.write_text(text)
        os.utime(path, (NOW - 9000 * HOUR, NOW - 9000 * HOUR))
    leave(state, "20260304-041500-e5f6a7", "Is rank 3 stuck?", "2026-03-04T04:20:00+00:00",
          [{"tool": "py_spy", "args": {"pid": 123}, "why": "stacks"}])  # fmt: skip
    leave(state, "20260304-021500-f6a7b8", "Why is it slow?", "2026-03-04T02:20:00+00:00")
    return state, here


def a_run(folder: Path, hours: float = 1) -> Path:
    """A folder that looks like a run."""
    (folder / "logs").mkdir(parents=True)
    (folder / "checkpoint-500").mkdir()
    for name in ("logs/rank0.log", "logs/rank1.log", "ds_config.json", "trainer_state.json"):
        (folder / name).write_text("{}\n")
        os.utime(folder / name, (NOW - hours * HOUR, NOW - hours * HOUR))
    os.utime(folder / "checkpoint-500", (NOW - hours * HOUR, NOW - hours * HOUR))
    return folder
