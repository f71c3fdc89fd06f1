"""No line, however long and odd, may hold up a capture reader: its patterns take linear time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.reading.logs import engine_events, nccl_lines
from traindoctor.agent.reading.logs import nccl_lines as trials
from traindoctor.agent.reading.machine import host_state as hl
from traindoctor.agent.reading.machine import kernel_log, smi
from traindoctor.agent.reading.memory import oom
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan import anchors
from traindoctor.agent.reading.stacks import stack_dumps
from traindoctor.agent.tools.tool import all_tools

ODD = (
    "a" * 60000, " " * 60000, "1 " * 30000, "GPU " * 15000, "Tried to allocate " * 3000, "socket " * 8000,
    "connect to " * 5000, "[Rank " * 8000, "#0 0x1 in " + "f(" * 20000, 'File "' * 9000, "/" * 60000, "1," * 30000,
    "status=" * 8000, "x.y" * 20000, "12.5/" * 12000, "step " * 12000, "| " * 30000, "update_weights " * 4000,
    "Rank 1 is running collective: CollectiveFingerPrint(" * 1000, "last enqueued work: 1 " * 2500, "libnccl.so." * 5000,
    "may " * 15000 + "out of memory",
)  # fmt: skip


def one(text: str) -> list[Line]:
    return [Line(1, 0, text.encode())]


READERS: dict[str, Callable[[str], Any]] = {
    "oom": oom.parse,
    "step": oom.step_of,
    "frames": lambda t: oom.telling(oom.frames_above([t, "x"], 1, [True, True])),
    "work": nccl_lines.work_of,
    "progress": nccl_lines.progress_of,
    "mismatch": nccl_lines.mismatch_of,
    "version": nccl_lines.version_of,
    "world": nccl_lines.world_size,
    "peer": nccl_lines.closed_peer,
    "host": lambda t: list(hl.facts_of(t)),
    "disk": lambda t: [*hl.disk_facts(t, "size"), *hl.memory_facts(t)],
    "xid": kernel_log.xid_of,
    "smi": lambda t: list(smi.readings(one(t))),
    "polls": lambda t: smi.polls(one(t)),
    "stacks": lambda t: [stack_dumps.where(s) for s in stack_dumps.stacks(one("Thread 0x1\n") + one(t))],
    "calls": lambda t: engine_events.COMPARED.search(t) or [p.search(t) for _, p in engine_events.CALLS],
    "trials": lambda t: trials.failure_line(one(t)),
}


@pytest.mark.parametrize("name", READERS)
def test_readers_take_odd_lines_in_their_stride(name: str) -> None:
    for text in ODD:
        began = time.process_time()
        READERS[name](text)
        assert time.process_time() - began < 2, text[:30]


def test_tables_compile_and_cover_their_topics() -> None:
    assert {"oom", "watchdog", "nccl", "xid", "gpu", "stack", "host", "engine", "world"} <= set(anchors.anchor_words())
    for table in ("oom_kinds", "phases", "host", "stacks"):
        assert anchors.patterns(table)


def test_every_tool_takes_a_file_of_odd_lines(tmp_path: Path) -> None:
    heads = ["Tried to allocate ", "WorkNCCL(", "NCCL WARN ", "Xid ", "py-spy ", "nvidia-smi ", "slurmstepd ", "POST /sleep "]
    (tmp_path / "train.log").write_bytes(b"\n".join((h + o)[:70000].encode() for h in heads for o in ODD) + b"\xff\xfe\n\x00x")
    ws = Workspace([tmp_path])
    for name in ("oom_report", "watchdog", "nccl_log", "nccl_versions", "xid_errors", "gpu_status", "stacks", "host_health",
                 "engine_events"):  # fmt: skip
        began = time.process_time()
        assert all_tools()[name](ws).outcome in {"finding", "clean", "not_applicable"}
        assert time.process_time() - began < 20, name
