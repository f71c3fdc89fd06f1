"""The loop around a running job: one thread that waits for signals, ends and the next look.

Whatever goes wrong in here is told once; the job is still waited for and its signals are still passed on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from . import signals as of_signals
from .job import Job
from .record import Record
from .relay import Relay
from .signals import Signals
from .terminal import Terminal
from .wishes import Voice

LOOK_SECONDS = 1.0
RECORD_SECONDS = 30.0
GRACE_SECONDS = 30.0  # between asking a job that hangs to end and ending it
STRAY_SECONDS = 60.0


class Observer(Protocol):
    """What watches a job from beside the loop (`watcher.py`)."""

    trouble: str
    hung: str

    def look(self, now: float) -> None: ...
    def facts(self) -> dict[str, Any]: ...
    def ended(self, code: int | None = None) -> None: ...


@dataclass
class Ending:
    """How an attempt ended. `number` is the signal that ended the job, 0: none."""

    code: int
    number: int
    hung: bool
    told: list[int]  # signals that asked it to end, as we got them
    by_key: bool  # somebody pressed Ctrl-C or Ctrl-\
    judged: bool = False  # it stood still, was diagnosed as it did, and was ended by us then


class Loop:
    """One attempt from its start to its end."""

    def __init__(
        self, job: Job, relay: Relay, terminal: Terminal | None, taken: Signals, record: Record, say: Voice,
        observer: Observer | None, on_hang: Callable[[], int], end_after: float = 0.0,
    ) -> None:  # fmt: skip
        """Args:
        on_hang: begins the diagnosis of a standstill; the pid of a child, 0: there is none, -1: another one's.
        end_after: a job that stands still is asked to end once that diagnosis is over, so many seconds later at most;
            0: it is left alone.
        """
        self.job, self._relay, self._terminal, self._taken = job, relay, terminal, taken
        self._record, self._say, self._observer, self._on_hang = record, say, observer, on_hang
        self._end_after = end_after
        self._status: int | None = None
        self._told: list[int] = []
        self._by_key = self._hung = self._reading = self._stop_passed = self._complained = False
        self._kill_at = self._end_at = self._written = self._strays_at = 0.0
        self._strays: set[int] = set()
        self.child = 0  # a triage that runs beside the job
        self._child_code: int | None = None

    def until_the_end(self) -> Ending:
        """Wait for the job, whatever happens here."""
        next_look = self._written = self._strays_at = time.monotonic()
        while self._status is None:
            info = None
            try:
                info = self._taken.take(next_look - time.monotonic())
                if info is not None and info.si_signo != signal.SIGCHLD:
                    self._pass_on(info)
                self._reap()
                if self._status is None and time.monotonic() >= next_look:
                    self._look()
                    next_look = time.monotonic() + LOOK_SECONDS
            except Exception as e:  # noqa: BLE001 - a bug of ours must not cost the job
                self._complain(e)
                next_look = time.monotonic() + LOOK_SECONDS
                self._reap_plainly()
        number = os.WTERMSIG(self._status) if os.WIFSIGNALED(self._status) else 0
        code = 128 + number if number else os.WEXITSTATUS(self._status)
        self._close(code, number)
        judged = bool(self._kill_at) and self._child_code == 0
        return Ending(code, number, self._hung, self._told, self._by_key, judged)

    def _close(self, code: int, number: int) -> None:
        """Let what the job wrote arrive, then put the terminal back and the record to its end."""
        try:
            self._record.end(code, number)
            self._relay.order("E")
            self._until_drained()
            if self._terminal:
                self._terminal.close()
                self._say.raw = False
            if self._observer:
                self._observer.ended(0 if self._by_key else code)  # who pressed Ctrl-C waits for nothing
            self._write_record()
        except Exception as e:  # noqa: BLE001 - a bug of ours must not cost the exit code
            self._complain(e)
        finally:
            if self._terminal:
                self._terminal.restore()
                self._say.raw = False
            self._relay.close()
            self._record.write()

    def _until_drained(self) -> None:
        while True:
            self._relay.hear()
            if self._relay.over or self._relay.drained:
                return
            info = self._taken.take(0.02)
            if info is not None and info.si_signo in of_signals.ENDING:
                return

    # signals ------------------------------------------------------------------------------------------------

    def _pass_on(self, info: signal.struct_siginfo) -> None:
        number, pid = info.si_signo, self.job.pid
        if number in self._taken.ignored:
            return
        by = of_signals.sender(info)
        if self._terminal:
            if number == signal.SIGWINCH:
                self._terminal.resize()
                return
            if of_signals.from_terminal(info) and self._key(number):
                self._stop_passed = number == signal.SIGTSTP
                self._by_key = self._by_key or number in (signal.SIGINT, signal.SIGQUIT)
            elif number == signal.SIGCONT:
                self._front()
                os.killpg(pid, signal.SIGCONT)
            elif not by.startswith("slurm") or not of_signals.reached_others(number, self._relay.pid, by):
                of_signals.send(number, pid)
        elif not of_signals.reached_others(number, self._relay.pid, by):
            of_signals.send(number, pid)
        self._relay.order("C")
        self._stop_passed = self._stop_passed or number == signal.SIGTSTP
        if number in of_signals.ENDING:
            self._by_key = self._by_key or (of_signals.from_terminal(info) and number != signal.SIGHUP)
            self._told.append(number)
            told = {"signal": signal.Signals(number).name, "at": of_signals.moment(), "by": by}
            self._record.facts["told_to_end"].append(told)
            self._write_record()  # a scheduler's SIGKILL may follow

    def _key(self, number: int) -> bool:
        """Press a key of the outer terminal on the inner one.

        Ctrl-Z would do nothing there: the kernel stops no group whose parent stands in another session. So a job that
        leaves SIGTSTP as it is is stopped by us.
        """
        assert self._terminal is not None
        pid = self.job.pid
        if number == signal.SIGTSTP and self._terminal.listens_to(pid) and of_signals.is_default(number, pid):
            os.killpg(pid, signal.SIGSTOP)
            return True
        return self._terminal.press(number)

    def _stopped(self) -> None:
        """The job stopped: stop as well where its stop came through us, so that the shell sees what it would."""
        if not self._stop_passed:
            return
        self._stop_passed = False
        if self._terminal:
            self._behind()
            self._terminal.restore()
            self._say.raw = False
        tstp = {signal.SIGTSTP}
        while signal.sigtimedwait({signal.SIGTSTP, signal.SIGCONT}, 0):
            pass
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, tstp)  # stops here, until somebody continues us
        signal.pthread_sigmask(signal.SIG_BLOCK, tstp)
        if self._terminal:
            self._terminal.resize()
            self._front()
            os.killpg(self.job.pid, signal.SIGCONT)
        else:
            of_signals.send(signal.SIGCONT, self.job.pid)

    def _front(self) -> None:
        """Read keys where we are in front of the terminal, and only there."""
        if not self._terminal:
            return
        if self._terminal.settle():
            if not self._reading:
                self._relay.order("R")
            self._reading = self._say.raw = True
        elif self._reading:
            self._behind()
            self._say.raw = False

    def _behind(self) -> None:
        """Leave the keyboard to others; waits a second at most until that is so."""
        self._relay.order("P")
        self._reading = False
        end = time.monotonic() + 1.0
        while not (self._relay.paused or self._relay.over) and time.monotonic() < end:
            self._relay.hear()
            time.sleep(0.002)

    # ends ---------------------------------------------------------------------------------------------------

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(self.job.pid, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                pid, status = self.job.pid, self._status if self._status is not None else 0xFF00
            if not pid:
                break
            if not os.WIFSTOPPED(status):
                self._status = status
                break
            self._stopped()
        _reaped(self._relay.pid)
        if self.child > 0 and (code := _reaped(self.child)) is not None:
            self._child_code = code

    def _reap_plainly(self) -> None:
        try:
            pid, status = os.waitpid(self.job.pid, os.WNOHANG)
            if pid:
                self._status = status
        except ChildProcessError:
            self._status = self._status if self._status is not None else 0xFF00

    def _reap_strays(self) -> None:
        """Take away the remains of processes that the job left behind, which came to us. Not those we just started."""
        try:
            children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
            now = {int(pid) for pid in children.split()} - {self.job.pid, self._relay.pid, self.child}
        except OSError:
            return
        for pid in now & self._strays:
            _reaped(pid)
        self._strays = now

    # looks --------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        now = time.monotonic()
        self._relay.hear()
        self._front()
        if self._observer:
            trouble = self._observer.trouble
            self._observer.look(now)
            if self._observer.trouble and not trouble:
                self._write_record()
            if self._hung and not self._observer.hung and not self._kill_at:
                self._hung = False  # it went on: what it says at its end is its own
            if self._observer.hung and not self._hung:
                self._hung = True
                self._write_record()
                self._child_code, self.child = None, self._on_hang()
                self._end_at = now + self._end_after if self._end_after else 0.0
            self._end_hung(now)
        if self._kill_at and now >= self._kill_at:
            self._kill_at = now + LOOK_SECONDS
            for pid in [*reversed(descendants(self.job.pid)), self.job.pid]:
                of_signals.send(signal.SIGKILL, pid)
        if now - self._strays_at >= STRAY_SECONDS:
            self._strays_at = now
            self._reap_strays()
        if now - self._written >= RECORD_SECONDS or self._relay.notes:
            self._write_record()

    def _end_hung(self, now: float) -> None:
        """Ask a job that stands still to end, once its standstill is diagnosed: what its end prints is no evidence."""
        if not self._end_at or (self.child and self._child_code is None and now < self._end_at):
            return
        self._end_at = 0.0
        if self._observer and self._observer.hung:
            self._say("the job is asked to end (--on-hang kill)")
            told = {"signal": "SIGTERM", "at": of_signals.moment(), "by": "doctor (--on-hang kill)"}
            self._record.facts["told_to_end"].append(told)
            self._kill_at = now + GRACE_SECONDS
            self._write_record()
            of_signals.send(signal.SIGTERM, self.job.pid)

    def _write_record(self) -> None:
        self._written = time.monotonic()
        self._relay.hear()
        for line in self._relay.notes:
            self._record.note(line)
        self._relay.notes.clear()
        self._record.write(self._observer.facts() if self._observer else None)

    def _complain(self, e: Exception) -> None:
        self._observer = None
        if not self._complained:
            self._complained = True
            line = f"a bug of doctor, not of the job: {type(e).__name__}: {e}; the job goes on unwatched"
            self._record.note(line)
            self._say(line)


def descendants(pid: int) -> list[int]:
    """All processes below one, those nearest to it first."""
    found: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop(0)
        below: list[int] = []
        try:
            for thread in Path(f"/proc/{parent}/task").iterdir():
                below += [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
        except OSError:
            continue
        found += below
        todo += below
    return found


def _reaped(pid: int) -> int | None:
    """The exit code of a child of ours that has ended; negative where a signal ended it."""
    if pid > 0:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status) if done else None
    return None
