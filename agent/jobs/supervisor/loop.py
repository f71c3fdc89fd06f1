"""The loop around a running job: one thread that waits for signals, ends and the next look.

Whatever goes wrong in here is told once; the job is still waited for and its signals are still passed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from .relay import Relay
from .run_folder import Record
from .spawn import Terminal
from .supervised_job import Job, Voice

# ----------
# Signals on their way to the job: each reaches it once, and who sent it is known.
#
# Everything is blocked and taken one by one. The job stands in our process group, so what is sent to the group (Ctrl-C,
# `kill -- -PGID`) or to every process (a scheduler that cancels a step) has reached it already. The relay tells which:
# it stands beside us with all signals blocked, and a signal that was meant for more than us is pending on it too.


FORWARDED = (
    signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT,
    signal.SIGTSTP, signal.SIGWINCH, signal.SIGALRM, signal.SIGXCPU, signal.SIGURG, signal.SIGPWR,
)  # fmt: skip
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGXCPU)
_TAKEN = {*FORWARDED, signal.SIGCHLD}
_BLOCKED = {*_TAKEN, signal.SIGTTOU, signal.SIGTTIN}
_FROM_KERNEL = 0x80  # SI_KERNEL: a key of the terminal, a hangup
_SOON = 0.05  # seconds in which the others of a group get a signal that we got


class Signals:
    """All signals of the supervisor, from `block` until `release`."""

    def __init__(self) -> None:
        self.ignored = {s for s in FORWARDED if signal.getsignal(s) == signal.SIG_IGN}
        self.before: set[int] = {int(s) for s in signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)}

    def take(self, seconds: float) -> signal.struct_siginfo | None:
        """The next signal, or None after so long."""
        return signal.sigtimedwait(_TAKEN, max(seconds, 0))

    def calm_for(self, seconds: float) -> bool:
        """Wait while no job runs; false at once where somebody asks us to end."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            info = self.take(left)
            if info is not None and info.si_signo in ENDING and info.si_signo not in self.ignored:
                return False
        return True

    def release(self) -> None:
        """Signals work on us as before; those that came meanwhile are dropped."""
        while signal.sigtimedwait(_TAKEN, 0):
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


def from_terminal(info: signal.struct_siginfo) -> bool:
    """Whether the kernel sent it: a key was pressed, or the terminal went away."""
    return info.si_code == _FROM_KERNEL


def sender(info: signal.struct_siginfo) -> str:
    """Who sent a signal, as a person reads it."""
    if from_terminal(info):
        return "the terminal"
    if not info.si_pid:
        return "a process outside this container"
    try:
        name = Path(f"/proc/{info.si_pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return f"pid {info.si_pid}, gone"
    return f"{name} (pid {info.si_pid})"


def reached_others(number: int, relay: int, by: str) -> bool:
    """Whether a signal was sent to more processes than us, and so to the job: it is pending on the relay.

    Waits 50 ms at most for it to get there, longer for a scheduler, which goes from process to process.
    """
    end = time.monotonic() + (0.5 if by.startswith("slurm") else _SOON)
    while True:
        if _pending(number, relay):
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.002)


def is_default(number: int, pid: int) -> bool:
    """Whether a process neither catches nor ignores a signal."""
    return not _marked(number, pid, ("SigIgn:", "SigCgt:"))


def _pending(number: int, pid: int) -> bool:
    return _marked(number, pid, ("SigPnd:", "ShdPnd:"))


def _marked(number: int, pid: int, sets: tuple[str, ...]) -> bool:
    try:
        with Path(f"/proc/{pid}/status").open(encoding="utf-8", errors="replace") as f:
            return any(line.startswith(sets) and int(line.split()[1], 16) >> (number - 1) & 1 for line in f)
    except (OSError, ValueError):
        return False


def send(number: int, pid: int) -> None:
    """Send one process a signal; one that is gone needs none."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def moment() -> str:
    """Now, in UTC, as the records say it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# ----------

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
            if info is not None and info.si_signo in ENDING:
                return

    # signals ------------------------------------------------------------------------------------------------

    def _pass_on(self, info: signal.struct_siginfo) -> None:
        number, pid = info.si_signo, self.job.pid
        if number in self._taken.ignored:
            return
        by = sender(info)
        if self._terminal:
            if number == signal.SIGWINCH:
                self._terminal.resize()
                return
            if from_terminal(info) and self._key(number):
                self._stop_passed = number == signal.SIGTSTP
                self._by_key = self._by_key or number in (signal.SIGINT, signal.SIGQUIT)
            elif number == signal.SIGCONT:
                self._front()
                os.killpg(pid, signal.SIGCONT)
            elif not by.startswith("slurm") or not reached_others(number, self._relay.pid, by):
                send(number, pid)
        elif not reached_others(number, self._relay.pid, by):
            send(number, pid)
        self._relay.order("C")
        self._stop_passed = self._stop_passed or number == signal.SIGTSTP
        if number in ENDING:
            self._by_key = self._by_key or (from_terminal(info) and number != signal.SIGHUP)
            self._told.append(number)
            told = {"signal": signal.Signals(number).name, "at": moment(), "by": by}
            self._record.facts["told_to_end"].append(told)
            self._write_record()  # a scheduler's SIGKILL may follow

    def _key(self, number: int) -> bool:
        """Press a key of the outer terminal on the inner one.

        Ctrl-Z would do nothing there: the kernel stops no group whose parent stands in another session. So a job that
        leaves SIGTSTP as it is is stopped by us.
        """
        assert self._terminal is not None
        pid = self.job.pid
        if number == signal.SIGTSTP and self._terminal.listens_to(pid) and is_default(number, pid):
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
            send(signal.SIGCONT, self.job.pid)

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
                send(signal.SIGKILL, pid)
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
            told = {"signal": "SIGTERM", "at": moment(), "by": "doctor (--on-hang kill)"}
            self._record.facts["told_to_end"].append(told)
            self._kill_at = now + GRACE_SECONDS
            self._write_record()
            send(signal.SIGTERM, self.job.pid)

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
