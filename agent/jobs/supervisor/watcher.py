"""What is noticed of a job while it runs: its progress, its processes, what it uses, its first trouble, a standstill.

All of it is done on a thread of its own: a file system that hangs may stop the watching, never the passing on of a
signal. `look` is what the loop calls, and costs microseconds.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import tree
from .job_progress import Progress
from .spawn import Capture
from .supervised_job import Job
from .tree import Deaths, Process, Tree, content

# ----------
# Whether a job stands still. Silence alone is none: the rule, in the order in which it is asked.
#
# 1. Life is a counter that moves, a kind of line that was never seen before, or more than `DATA` bytes a second read
# and written by the job's processes (a checkpoint is being saved or loaded). A stopped process (Ctrl-Z) is no
# standstill. Lines that repeat themselves, as watchdogs print them, and use of the processor, as ranks spin while
# they wait for one another, are no life. 2. A job whose counter has moved in at least two looks, and is not at its
# end, may be without life for the most of the limit, ten times its median step, and three times its usual silence
# between two new steps. 3. A job that has shown no counter may be without life for twice the limit, if it has ranks
# or has never printed anything, and only while all its processes together use less than `IDLE` of one processor:
# compiling, loading and preparing data burn it, waiting for a rank that never comes does not. 4. A process at work is
# life for six times as long: one that uses the processor, or waits for its turn on it, in most looks. This holds for
# the only rank of a job, for what it started (an evaluation, a pool that packs or tokenizes) and for what ranks
# started; not for a rank among several, which spins while it waits for the others. 5. Then the stacks of its ranks
# are looked at several times. Where a rank works and its stack keeps changing, it is a long evaluation, say, that
# prints nothing: that counts as life, once more the whole time. 6. What is left is a standstill. The job is told
# nothing of it; if it goes on, that is said once and its patience is from then on twice the time that it stood still.


DATA = 1 << 20  # bytes a second
IDLE = 0.05  # of one processor
STEPS, USUAL = 10.0, 3.0
WORKING, MOST_LOOKS = 0.2, 0.6  # of one processor; of the looks
AT_WORK = 6.0  # times the limit that a process at work may be without other life


@dataclass(slots=True)
class Standstill:
    """A job without life: for how long, against which limit, seconds."""

    quiet: float
    limit: float
    step: int | None


class Patience:
    """Watches for a standstill. Times are `time.monotonic()`; `limit` is what the user set, 0 for never."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._least = limit
        self._life = now  # from other signs than the output
        self._bytes: tuple[float, int] | None = None
        self._cpu: tuple[float, dict[tuple[int, int], float]] | None = None
        self._busy = now
        self._worked: deque[bool] = deque(maxlen=4)

    def look(self, now: float, progress: Progress, tree: Tree) -> Standstill | None:
        """After each whole scan of the processes: a standstill whose stacks are to be looked at, or None."""
        if self.limit <= 0 or not tree.all:
            return None
        self._processor(now, tree)
        if any(p.state in "Tt" for p in tree.ranks()):
            self._life = now
        limit = self._allowed(progress, tree)
        if limit is None:
            return None
        quiet = now - max(self._life, progress.moved)
        if quiet < limit / 4:
            self._bytes = None
            return None
        if self._data(now, tree):
            self._life = now
            return None
        if quiet < limit or (not progress.stepping and now - self._busy < limit):
            return None
        if quiet < AT_WORK * limit and self._at_work():
            return None
        return Standstill(quiet, limit, progress.last)

    def works(self, now: float) -> None:
        """Its stacks change: it lives."""
        self._life = now

    def went_on(self, now: float, quiet: float) -> None:
        """It went on by itself after a standstill: it may stand still for twice as long from now on."""
        self._life = now
        self._least = max(self._least, 2 * quiet)

    def _allowed(self, progress: Progress, tree: Tree) -> float | None:
        main = progress.main
        if progress.stepping and main is not None:
            return max(self._least, STEPS * (main.seconds or 0.0), USUAL * main.gap)
        if not progress.printed or any(p.main for p in tree.all.values()):
            return 2 * self._least
        return None

    def _processor(self, now: float, tree: Tree) -> None:
        used = tree.cpu
        if self._cpu is not None:
            then, before = self._cpu
            over = max(now - then, 0.1)
            spent = {key: seconds - before.get(key, 0.0) for key, seconds in used.items()}
            if sum(spent.values()) > IDLE * over:
                self._busy = now
            self._worked.append(
                any(p.state == "R" or spent[p.pid, p.born] > WORKING * over for p in _whose_work_counts(tree))
            )
        self._cpu = (now, used)

    def _at_work(self) -> bool:
        return len(self._worked) > 1 and sum(self._worked) >= MOST_LOOKS * len(self._worked)

    def _data(self, now: float, tree: Tree) -> bool:
        moved, before = tree.moved_bytes(), self._bytes
        self._bytes = (now, moved)
        return before is not None and moved - before[1] > DATA * (now - before[0])


def _whose_work_counts(tree: Tree) -> list[Process]:
    """Those that do not spin while they wait for one another: all where there is one rank at most, else no rank."""
    alone = len({p.rank for p in tree.all.values() if p.main}) < 2
    return [p for p in tree.all.values() if alone or not p.main]


# ----------

# ruff: noqa: PTH119, PTH115


LOOK, DISK, CALM = 1.0, 10.0, 1.5  # seconds between two looks; between looks at the disk; before the first snapshot
STACKS, SNAPSHOT, LAST = 45.0, 20.0, 5.0  # bounds of captures, seconds
DUMPED = 64  # processes whose stacks are read
_NO_STACKS = ("resource_tracker", "compile_worker", "tensorboard")


class Watcher:
    """Watches one attempt.

    Attributes:
        trouble: the first sign of a failure, once there is one.
        hung: how the job stands still, as long as it does.
    """

    def __init__(self, job: Job, tell: Callable[[str], None]) -> None:
        now = time.monotonic()
        self.trouble = self.hung = ""
        self._job, self._tell = job, tell
        self._began = now
        self._tree = Tree(job.pid, str(job.run))
        self._deaths = Deaths(job.pid)
        self._progress = Progress(job.console, job.place / "ranks", now)
        self._patience = Patience(job.hang_after, now)
        self._memory = tree.Memory(job.pid)
        self._captures: list[Capture] = []
        self._stacks: tuple[Capture, Standstill] | None = None
        self._taken: set[str] = set()
        self._main: dict[str, str] = {}
        self._hang: dict[str, Any] | None = None
        self._stood = 0.0  # when it was suspected to stand still; how many were dead, and how long it was quiet by then
        self._dead, self._quiet = 0, 0.0
        self._stepped_at: str | None = None
        self._disk_at = now - DISK
        self._facts: dict[str, Any] = {}
        self._notes: list[str] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self, now: float) -> None:
        """Called about once a second; begins the watching the first time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
            self._thread.start()

    def facts(self) -> dict[str, Any]:
        """What a record says of it: died, memory, disk, steps, hang."""
        return dict(self._facts)

    def ended(self, code: int | None = None) -> None:
        """After the job's end: read its last words, and capture the machine's state unless it ended well."""
        self._stop.set()
        self._deaths.ring()
        if self._thread is not None:
            self._thread.join(2.0)
            if self._thread.is_alive():  # a file system that hangs: nothing more is read from it
                return
        now = time.monotonic()
        for _ in range(4):
            if not self._progress.look(now):
                break
        if self._stacks is not None:
            self._stacks[0].kill()
            self._stacks = None
        self._note_facts(now, disk=True)
        if code != 0:
            self._snapshot("end")
        until = time.monotonic() + (LAST if code != 0 else 0.0)
        for capture in self._captures:
            capture.wait(until - time.monotonic())
        self._deaths.close()

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        failed = False
        while not self._stop.is_set():
            try:
                self.observe(time.monotonic())
                self._wait()
            except Exception as e:  # noqa: BLE001 - a bug of ours must never matter to the job
                if not failed:
                    self._tell(f"a bug of doctor while it watched: {type(e).__name__}: {e}; the job goes on")
                failed = True
                self._stop.wait(LOOK)

    def _wait(self) -> None:
        until = time.monotonic() + LOOK
        while not self._stop.is_set() and (left := until - time.monotonic()) > 0:
            if self._deaths.wait(min(left, 0.2)):
                died = self._deaths.died[-1]
                who = f"rank {died['rank']}" if died["rank"] is not None else f"process {died['pid']}"
                how = died["signal"] or f"exit code {died['code']}"
                self._troubled(f"{who} ended: {how}")

    def observe(self, now: float) -> None:
        """One look at everything."""
        if not self._main:
            self._main = _of(self._job.pid)
        if self._progress.look(now) and self._progress.stepped == now:
            self._stepped_at = _moment()
        if self._hang is not None and not self._hang["went_on"] and self._lives_again():
            self._on_again(now)
        scanned = self._tree.look(now)
        if scanned:
            self._deaths.follow(list(self._tree.all.values()))
            self._stand(now)
        if self._progress.trouble:
            self._troubled(self._progress.trouble)
        if "start" not in self._taken and now - self._began >= CALM:
            self._snapshot("start")
        if scanned or now - self._disk_at >= DISK:
            self._note_facts(now, disk=now - self._disk_at >= DISK)
        self._captures = [c for c in self._captures if not c.over()]

    def _stand(self, now: float) -> None:
        """Whether the job stands still, after a scan of its processes."""
        if self._stacks is not None:
            capture, still = self._stacks
            if not capture.over():
                return
            self._stacks = None
            answer = capture.answer()
            told = answer if isinstance(answer, dict) else {}
            if told.get("moving"):
                self._patience.works(now)
            elif self._progress.moved <= self._stood:
                self._stands(now, still, [str(s) for s in told.get("stacks") or []], str(told.get("why") or ""))
            return
        if self._hang is not None and not self._hang["went_on"]:
            return
        still = self._patience.look(now, self._progress, self._tree)
        if still is not None:
            self._stood, self._dead = now, len(self._deaths.died)
            try:
                capture = Capture("job_stacks", [str(self._job.place / "stacks"), *self._targets()], None, STACKS)
            except OSError as e:
                self._stands(now, still, [], f"no stacks: {e.strerror}")
                return
            self._stacks = (capture, still)

    def _stands(self, now: float, still: Standstill, stacks: list[str], why: str) -> None:
        self._quiet, quiet = still.quiet, still.quiet + now - self._stood
        self._hang = {
            "at": _moment(), "last_step": still.step, "quiet_seconds": round(quiet, 1),
            "limit_seconds": round(still.limit, 1), "stacks": stacks, "went_on": False,
        }  # fmt: skip
        if why:
            self._notes.append(f"stacks: {why}")
        self._snapshot("trouble")
        self._note_facts(now, disk=True)
        step = f" after step {still.step}" if still.step is not None else ""
        where = f"stacks of its processes are in {shlex.quote(str(self._job.place / 'stacks'))}" if stacks else why
        self.hung = f"no progress for {quiet:.0f} s{step}: the job seems to hang" + (f"; {where}" if where else "")
        self._tell(self.hung)

    def _lives_again(self) -> bool:
        """Whether a job that stood still does more than print its last words: its steps go on, or its first ones come.

        A job that is ended because it stands still, by a watchdog or by us, says a lot at last.
        """
        if len(self._deaths.died) > self._dead:
            return False
        return self._progress.stepped > self._stood

    def _on_again(self, now: float) -> None:
        """It stood still for long and goes on: its stacks are no evidence of a hang any more."""
        assert self._hang is not None
        quiet = self._quiet + now - self._stood
        self._hang["went_on"] = True
        self.hung = ""
        self._patience.went_on(now, quiet)
        folder = self._job.place / "stacks"
        with contextlib.suppress(OSError):
            folder.rename(folder.with_name(".stacks_went_on"))
            self._hang["stacks"] = [s.replace("stacks/", ".stacks_went_on/", 1) for s in self._hang["stacks"]]
        self._note_facts(now, disk=False)
        self._tell(f"the job goes on, after {quiet:.0f} s without progress")

    def _troubled(self, line: str) -> None:
        if not self.trouble:
            self.trouble = line
            self._snapshot("trouble")

    def _targets(self) -> list[str]:
        """The ranks first, then the Python processes that they started."""
        ranks = self._tree.ranks()
        mains = {p.pid for p in ranks}
        alive = [p for p in self._tree.all.values() if p.python and p.state != "Z" and p.pid not in mains]
        with_rank = any(p.main for p in ranks)
        workers = [p for p in alive if not with_rank or p.rank is not None]
        chosen = [p for p in [*ranks, *workers] if not any(word in p.command for word in _NO_STACKS)]
        return [_target(p, p.pid in mains) for p in chosen[:DUMPED]]

    def _snapshot(self, name: str) -> None:
        if name in self._taken:
            return
        self._taken.add(name)
        since = self._job.began - time.time() + time.monotonic()  # the kernel's lines carry this clock
        words = [str(self._job.place / name), str(self._job.pid), f"{min(since, self._began) - 0.1:.3f}"]
        facts = {"run": str(self._job.run), "python": self._python(), "environ": self._main.get("environ", "")[:40_000]}
        if name != "start" and "start" in self._taken:
            facts["environ"] = facts["python"] = ""  # as it was at the start
        with contextlib.suppress(OSError):
            self._captures.append(Capture("snapshot", words, facts, SNAPSHOT))

    def _python(self) -> str:
        """The interpreter of the job, as it was called: a virtual environment is known by that name."""
        first = self._main.get("python", "")
        return first or next((found for p in self._tree.ranks() if (found := _of(p.pid).get("python", ""))), "")

    def _note_facts(self, now: float, disk: bool) -> None:
        facts: dict[str, Any] = {
            "died": list(self._deaths.died), "memory": self._memory.facts(self._tree),
            "steps": self._progress.facts(self._stepped_at), "hang": dict(self._hang) if self._hang else None,
            "disk": self._facts.get("disk", {}),
        }  # fmt: skip
        if disk:
            self._disk_at = now
            facts["disk"] = tree.disk(self._job.run)
        self._facts = facts


def _target(p: Process, main: bool) -> str:
    return f"{p.pid}:{'' if p.rank is None else p.rank}{'' if main else ':w'}"


def _of(pid: int) -> dict[str, str]:
    """Variables and interpreter of a process; it may be gone any moment."""
    argv = content(f"/proc/{pid}/cmdline", 8192).split(b"\0")
    python = ""
    if argv and b"python" in os.path.basename(argv[0]):
        python = argv[0].decode(errors="replace")
        if "/" not in python:
            with contextlib.suppress(OSError):
                python = os.readlink(f"/proc/{pid}/exe")
        elif not python.startswith("/"):
            with contextlib.suppress(OSError):
                python = str(Path(os.readlink(f"/proc/{pid}/cwd")) / python)
    return {"environ": content(f"/proc/{pid}/environ", 1 << 17).decode(errors="replace"), "python": python}


def _moment() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
