"""What a check would run, found out without running it: the tool works on a copy of the workspace that only notes.

What merely lists processes and GPUs passes to the machine, as the commands that follow depend on it. Everything else
is noted and answered with "not run". A tool that also writes a file of its own on the way asks `rehearses(ws)` first
and says by `would_run` what it would have started.
"""

from __future__ import annotations

import contextvars
import copy
import json
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.shell import Completed, Live, Shell
from ..core.types import Call
from ..reading.machine.job_processes import Process
from ..reading.run.workspace import Workspace
from .tool import Tool, all_tools, guarded

SECONDS = 5.0  # in which a rehearsal must be over; the question is asked without its answer otherwise
NOT_RUN = "not run: this is a rehearsal"
# The whole of what passes to the machine. It lists, and attaches to nothing.
_PROGRAMS = ("traindoctor.agent.jobs.probes.processes", "traindoctor.agent.jobs.probes.nvml")
_LISTS = (
    ("nvidia-smi", "-L"),
    ("nvidia-smi", "-q", "-x"),
    ("nvidia-smi", "topo", "-m"),
    ("nvidia-smi", "--query-gpu=name,pcie.link.gen.max", "--format=csv,noheader"),
)
_UNTOLD = (("cat", "/proc/sys/kernel/yama/ptrace_scope"),)  # read where something was refused; nothing to ask about
_PID_FLAGS = ("--pid", "-p", "-t")

# What no argv says. `{name}` stands for an argument of the call.
_MORE = {
    "dump_stacks": "Each is run twice, {seconds:g} s apart; where a child process is no Python, once more without "
    "--subprocesses.",
    "sample_stacks": "Each is run again and again for {seconds:g} s, up to {rate} times a second.",
    "live_eval": "{{answer}} is a fresh file of doctor's own in the temporary folder, removed afterwards. The "
    "expression runs inside the training process.",
    "storage_speed": "It writes {megabytes} MB and 500 small files into a fresh folder there and removes them; where "
    "it does not end, the same program removes them by a second run (--remove).",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One command that would be run: `env` is set for it beside our own, `seconds` is its time limit."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    cwd: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What a call would run, in order.

    Attributes:
        note: in words, what the lines do not say; why there are none.
        touches: the host, and the processes that the lines name.
    """

    lines: tuple[Line, ...] = ()
    note: str = ""
    touches: tuple[str, ...] = ()


@dataclass(eq=False)
class _Noting:
    """A shell that runs nothing but what lists, and notes the rest."""

    real: Shell
    ends: float
    lines: list[Line] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    seen: dict[int, Process] = field(default_factory=dict)

    def run(
        self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> Completed:
        if _only_lists(argv):
            left = self.ends - time.monotonic()
            if left <= 0:
                raise TimeoutError("stopped at its time limit")
            done = self.real.run(argv, min(timeout, left), env, cwd)
            self._note_processes(done)
            return done
        if tuple(argv) in _UNTOLD:
            return Completed(tuple(argv), None, "", NOT_RUN)
        if isinstance(self.real, Live) and _is_absent(argv[0]):
            self.absent.append(argv[0])
            return Completed(tuple(argv), None, "", f"{argv[0]}: not installed")
        self.note(argv, timeout, env, cwd)
        return Completed(tuple(argv), None, "", NOT_RUN)

    def note(self, argv: list[str], timeout: float, env: dict[str, str] | None, cwd: Path | None) -> None:
        """Keep a command that would have been run."""
        self.lines.append(Line(tuple(argv), tuple((env or {}).items()), str(cwd or ""), timeout))

    def _note_processes(self, done: Completed) -> None:
        if _PROGRAMS[0] not in done.argv:
            return
        for row in filter(lambda x: x.startswith("{"), done.stdout.splitlines()):
            try:
                process = Process(**json.loads(row))
            except (ValueError, TypeError):  # a row of another version: it is not named, that is all
                continue
            self.seen[process.pid] = process


def rehearses(ws: Workspace) -> bool:
    """Whether this is no real run: nothing may be written or reached but by `would_run`."""
    return isinstance(ws._shell, _Noting)


def would_run(ws: Workspace, argv: list[str], timeout: float) -> None:
    """In a rehearsal: note a command whose running would need something written before."""
    if isinstance(ws._shell, _Noting):
        ws._shell.run(argv, timeout)


def rehearse(
    call: Call, workspace: Workspace, seconds: float = SECONDS, stopped: Callable[[], bool] | None = None
) -> Rehearsed:
    """What a call would run now; nothing of it is run. What is read on the way is not kept in the workspace."""
    tool = all_tools().get(call.tool)
    if tool is None:
        return Rehearsed(note="There is no such check.")
    noting = _Noting(workspace._shell, time.monotonic() + seconds)
    beside = _copy(workspace, noting)
    ended: list[str] = []

    def work() -> None:
        ended.append(guarded(tool, beside, dict(call.args), seconds, stopped)[0].summary)

    # A thread that can be left behind: a folder on a dead mount answers nobody, and no deadline wakes who asks it.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="rehearsal", daemon=True)
    thread.start()
    until = noting.ends + 0.5
    while thread.is_alive() and time.monotonic() < until and not (stopped and stopped()):
        thread.join(0.05)
    lines = tuple(noting.lines)
    return Rehearsed(lines, _note(tool, call, lines, noting, ended), _touches(lines, noting))


def _copy(workspace: Workspace, shell: Shell) -> Workspace:
    """The same files with readings of its own."""
    beside = copy.copy(workspace)
    beside._shell = shell
    beside._memo = dict(workspace._memo)
    beside._lock, beside._told = threading.RLock(), threading.Lock()
    beside.skipped = list(workspace.skipped)
    beside.progress = type(workspace.progress)()
    return beside


def _only_lists(argv: list[str]) -> bool:
    if tuple(argv) in _LISTS:
        return True
    if len(argv) < 4 or argv[0] != sys.executable or argv[1:3] != ["-I", "-m"] or argv[3] not in _PROGRAMS:
        return False
    return all(word.isdigit() for word in argv[4:])


def _is_absent(program: str) -> bool:
    """Whether `shell.Live` would not find a program."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
    return os.sep not in program and shutil.which(program, path=path) is None


def _note(tool: Tool, call: Call, lines: tuple[Line, ...], noting: _Noting, ended: list[str]) -> str:
    said = [f"{name} is not installed here." for name in dict.fromkeys(noting.absent)]
    if not ended:
        said.append("It could not be told in time what would run: there may be more.")
    elif not lines:
        said.append(f"As things are now nothing would be run: {ended[0]}.")
    if lines and call.tool in _MORE:
        values = tool.arguments(**call.args).model_dump()
        said.append(_MORE[call.tool].format(**values))
    if lines and call.tool == "live_query" and not call.args.get("sql"):
        said.append("A process that answers is then asked for its module timings and its memory, by two selects.")
    if lines and lines[0].argv[0] == "all_reduce_perf":
        said.append("Where that cannot be started, our own all-reduce is run by torchrun instead.")
    if noting.seen and lines:
        said.append("The processes are looked up again when it runs; others may be found then.")
    return " ".join(said)


def _touches(lines: tuple[Line, ...], noting: _Noting) -> tuple[str, ...]:
    if not lines:
        return ()
    found: dict[str, None] = {f"this machine ({socket.gethostname()})": None}
    for line in lines:
        for flag, value in zip(line.argv, line.argv[1:], strict=False):
            if flag in _PID_FLAGS and value.isdigit():
                found[_named(int(value), noting.seen)] = None
    return tuple(found)


def _named(pid: int, seen: dict[int, Any]) -> str:
    process = seen.get(pid)
    if process is None:
        return f"process {pid}"
    rank = "" if process.rank is None else f" (rank {process.rank})"
    return f"process {pid}{rank}: {process.command or process.name}"
