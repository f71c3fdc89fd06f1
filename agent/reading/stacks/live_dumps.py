"""Stacks of running processes by py-spy, twice a moment apart: who stands still, and where.

py-spy's text is used rather than its JSON: a quoted frame then stands in the output as it is quoted, and files are
named as recorded dumps name them. `--nonblocking` reads a process without stopping it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.deadline import check
from ...core.shell import Completed
from ...core.types import Evidence
from ..machine.job_processes import Process, Processes, belongs, processes
from ..run.files import Line
from ..run.lines import output_lines
from .stack_dumps import Stack, stacks
from .stack_groups import Place, at_lock, place, user_frame, where

if TYPE_CHECKING:
    from ..run.workspace import Workspace

MOST, SECONDS = 64, 20.0
BUSY = 0.1  # share of a processor; a crowded machine gives little even to who computes
STATES = {"D": "uninterruptible", "T": "stopped", "t": "traced", "Z": "dead"}
SCOPE = "/proc/sys/kernel/yama/ptrace_scope"


@dataclass(slots=True)
class Target:
    """A process to dump, with its last dump, whether its main thread stood still, and the processor share it used."""

    process: Process
    done: Completed | None = None
    places: list[Place] = field(default_factory=list)
    still: bool | None = None
    cpu: float | None = None
    trouble: str = ""

    @property
    def progress(self) -> str:
        """moving: the frames changed; busy: the same frames, but it computes (or spins); still; unknown."""
        if self.still is None:
            return "unknown"
        return "moving" if not self.still else "busy" if (self.cpu or 0) > BUSY else "still"


def targets(ws: Workspace, seen: Processes) -> list[Target]:
    """The processes the user named, else the ranks found on this machine; of this run where its files are at hand."""
    found = seen.of(ws.pids) if ws.pids else seen.ranks()
    if not ws.pids and ws.files:
        found = [p for p in found if belongs(p, ws.roots)]
    return [Target(p) for p in sorted(found, key=lambda p: (p.rank if p.rank is not None else -1, p.pid))[:MOST]]


def dumped(ws: Workspace, found: list[Target], before: Processes, seconds: float) -> Processes:
    """Fill in each target's stacks by two dumps so many seconds apart; the second look at the processes."""
    began = time.monotonic()
    first = {t.process.pid: _shapes(_dump(ws, t)) for t in found}
    if all(t.trouble for t in found):
        return before
    while time.monotonic() - began < seconds:
        check()
        time.sleep(min(0.2, seconds))
    after = processes(ws) or before
    elapsed = max(time.monotonic() - began, 0.01)
    for t in found:
        if t.trouble:
            continue
        now = _dump(ws, t)
        same, main = first[t.process.pid], f"{t.process.pid} MainThread"
        shapes = _shapes(now)
        t.still = shapes.get(main) == same.get(main) if main in shapes else None
        if p := after.by_pid.get(t.process.pid):
            t.cpu = max(0.0, p.cpu - before.by_pid.get(p.pid, p).cpu) / elapsed
        unchanged = {k for k, v in shapes.items() if same.get(k) == v}
        t.places = [q for s in now if (q := _placed(ws, t, s, after, unchanged))]
    return after


def states(ws: Workspace, found: Iterable[Target], seen: Processes) -> list[Evidence]:
    """Ranks and workers that the kernel holds, that were stopped, or that are dead and not waited for."""
    evidence = []
    for t in found:
        for p in [seen.by_pid.get(t.process.pid, t.process), *seen.children(t.process.pid)]:
            told = STATES.get(p.state)
            if told:
                part = "itself" if p.pid == t.process.pid else f"child {p.name}"
                where = f" in {p.wchan}" if p.wchan and p.state == "D" else ""
                text = f"pid {p.pid} of rank {t.process.rank} ({part}): state {p.state}{where}"
                evidence.append(ws.answered(seen.done, "stack.process_state", told, text=text, rank=t.process.rank))
    return evidence[:12]


def why_not(ws: Workspace, done: Completed, process: Process) -> str:
    """Why py-spy could not read a process, and what to do about it."""
    told = done.stderr
    if "not installed" in told:
        return "py-spy is not installed: `pip install py-spy` in any Python of this machine"
    if "Permission" in told or "ptrace" in told.lower() or not process.readable:
        scope = ws.shell(["cat", SCOPE]).stdout.strip()
        if scope in ("1", "2"):
            return (
                f"no permission to attach to {process.pid} (ptrace_scope is {scope}): run the same command with sudo, "
                "or `sudo sysctl kernel.yama.ptrace_scope=0` for the time being"
            )
        return (
            f"no permission to attach to {process.pid} (user {process.uid}): run as that user or with sudo; in a "
            "container start it with --cap-add=SYS_PTRACE"
        )
    if "No such file" in told or "No such process" in told:
        return f"process {process.pid} ended meanwhile"
    if "python version" in told:
        return f"process {process.pid} is no Python that py-spy knows"
    first = next((x for x in told.splitlines() if x.strip()), "no answer")
    return f"py-spy on {process.pid}: {first[:160]}"


def _dump(ws: Workspace, t: Target) -> list[Stack]:
    argv = ["py-spy", "dump", "--nonblocking", "--subprocesses", "--pid", str(t.process.pid)]
    done = ws.shell(argv, SECONDS)
    if done.code != 0 and done.code is not None:  # a child that is no Python fails the whole dump
        done = ws.shell([a for a in argv if a != "--subprocesses"], SECONDS)
    check()
    t.done = done
    if done.code != 0:
        t.trouble = why_not(ws, done, t.process)
        return []
    return stacks(list(output_lines(done.stdout)))


def _shapes(found: list[Stack]) -> dict[str, tuple[str, ...]]:
    return {f"{s.pid} {s.thread}": tuple(f.text for f in s.frames) for s in found}


def _placed(ws: Workspace, t: Target, stack: Stack, seen: Processes, unchanged: set[str]) -> Place | None:
    done = t.done

    def cite(line: Line, key: str, value: object, rank: int | None) -> Evidence:
        assert done is not None
        return ws.answered(done, key, value, text=line.text, rank=rank)

    found = place(stack, t.process.rank, str(t.process.pid), cite)
    process = seen.by_pid.get(stack.pid or 0)
    if found is None or process is None or stack.thread != "MainThread":
        return found
    # a lock taken in C has no frame of its own: the kernel knows that the thread waits for it
    if (
        found.where in ("user", "worker", "library")
        and process.wchan.startswith("futex")
        and f"{stack.pid} MainThread" in unchanged
    ):
        return at_lock(found)
    return found


# ----------
# Stacks of running processes, read again and again: the share of samples in each place is a rough profile.

STACK_SAMPLES_SECONDS, STACK_SAMPLES_MOST = 10.0, 4000  # limit of one dump; samples in all


@dataclass(slots=True)
class Samples:
    """How often the main threads stood where, and one output that shows each."""

    total: int = 0
    places: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)
    shown: dict[str, tuple[Completed, str]] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)

    def wheres(self) -> list[tuple[str, float]]:
        """Places with their share of the samples, the largest first."""
        return [(w, n / self.total) for w, n in self.places.most_common()]

    def frames(self) -> list[tuple[str, float, tuple[Completed, str]]]:
        """The user's lines seen most often, with their share."""
        return [(f, n / self.total, self.shown[f]) for f, n in self.functions.most_common(12)]


def sampled(ws: Workspace, found: list[Target], seconds: float, rate: int) -> Samples:
    """Dump each target's main thread over and over; a process that ends or refuses is left out from then on."""
    samples, left = Samples(), list(found)
    until = time.monotonic() + seconds
    while left and samples.total < STACK_SAMPLES_MOST and time.monotonic() < until:
        began = time.monotonic()
        for t in list(left):
            check()
            done = ws.shell(["py-spy", "dump", "--nonblocking", "--pid", str(t.process.pid)], STACK_SAMPLES_SECONDS)
            if done.code == 0:
                _count(samples, done)
            else:
                samples.trouble.append(why_not(ws, done, t.process))
                left.remove(t)
        time.sleep(max(0.0, 1 / rate - (time.monotonic() - began)))
    return samples


def _count(samples: Samples, done: Completed) -> None:
    main = next((s for s in stacks(list(output_lines(done.stdout))) if s.thread == "MainThread" and s.frames), None)
    if main is None:
        return
    place, frame = where(main)
    samples.total += 1
    samples.places[place] += 1
    samples.shown.setdefault(place, (done, frame.line.text))
    if own := user_frame(main):
        samples.functions[own.text] += 1
        samples.shown.setdefault(own.text, (done, own.line.text))
