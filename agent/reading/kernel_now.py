"""The kernel log of this machine: by dmesg, else by the journal, and of it what is near the run's time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clocks import stamp_of
from .command_output import output_lines
from .files import Line

if TYPE_CHECKING:
    from ..shell import Completed
    from ..workspace import Workspace

DAY, BEFORE, OLDEST = 24 * 3600.0, 6 * 3600.0, 7 * 24 * 3600.0
ASKED = (
    ["dmesg", "--time-format", "iso"],
    ["journalctl", "-k", "--no-pager", "-o", "short-iso", "--since", "-7 days", "-n", "5000"],
)


@dataclass(slots=True)
class KernelLog:
    """Lines within the window; `done` answered them, None where nobody did, for the reason `why`."""

    done: Completed | None = None
    lines: list[Line] = field(default_factory=list)
    older: int = 0
    why: str = ""


def kernel_log(ws: Workspace) -> KernelLog:
    """The log of this machine's kernel, asked once for a workspace."""
    return ws.memo("kernel_log", lambda: _ask(ws))


def _ask(ws: Workspace) -> KernelLog:
    reasons = []
    for argv in ASKED:
        done = ws.shell(list(argv), 10.0)
        if done.code == 0 and not _empty(done.stdout):
            return _near(ws, done)
        said = (done.stderr or done.stdout).strip().splitlines()
        reasons.append(f"{argv[0]}: {_plain(said[-1] if said else 'nothing')}")
    return KernelLog(why="; ".join(reasons))


def _empty(text: str) -> bool:
    """The journal says so in a line of its own."""
    return not text.strip() or text.strip().startswith("-- No entries")


def _plain(said: str) -> str:
    for word in ("Operation not permitted", "insufficient permissions", "Permission denied"):
        if word.lower() in said.lower():
            return "no permission"
    return said.partition(": ")[2][:120] or said[:120]


def _near(ws: Workspace, done: Completed) -> KernelLog:
    """A line without a time of its own (continued output) belongs to the one above it."""
    start, log, inside = _start(ws), KernelLog(done), True
    for line in output_lines(done.stdout):
        stamp = stamp_of(line.text)
        if stamp and stamp.kind == "date":
            inside = stamp.value >= start
        if inside:
            log.lines.append(line)
        else:
            log.older += 1
    return log


def _start(ws: Workspace) -> float:
    """A day ago, or some hours before the run's oldest log was last written, by a clock that is recorded too."""
    clock = ws.shell(["date", "-u", "+%s"], 5.0)
    now = float(clock.stdout) if clock.code == 0 and clock.stdout.strip().isdigit() else time.time()
    written = []
    for file in ws.files[:2000]:
        if file.role == "log":
            try:
                written.append(file.path.stat().st_mtime)
            except OSError:
                continue
    return max(min([now - DAY, *(w - BEFORE for w in written)]), now - OLDEST)
