"""Signals on their way to the job: each reaches it once, and who sent it is known.

Everything is blocked and taken one by one. The job stands in our process group, so what is sent to the group (Ctrl-C,
`kill -- -PGID`) or to every process (a scheduler that cancels a step) has reached it already. The relay tells which:
it stands beside us with all signals blocked, and a signal that was meant for more than us is pending on it too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

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
