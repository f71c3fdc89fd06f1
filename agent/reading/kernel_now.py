"""The kernel log of this machine: by the journal, else by dmesg, and of it what is near the run's time.

What befell the hardware within a day matters to a run. A process that was killed matters only while the run ran.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clocks import stamp_of
from .command_output import output_lines
from .files import Line

if TYPE_CHECKING:
    from ..shell import Completed
    from ..workspace import Workspace

DAY, OLDEST = 24 * 3600.0, 7 * 24 * 3600.0
SLACK = 600.0  # seconds between the last word of a log and what ended the run
MARGIN = 5.0  # seconds by which clocks of a file system and of the kernel may differ
FILES = 200
# The journal first: it knows earlier boots, and gives the newest lines where there are very many.
ASKED = (
    ["journalctl", "--no-pager", "-o", "short-iso", "--since", "-7 days", "-n", "5000", "_TRANSPORT=kernel"],
    ["dmesg", "--time-format", "iso"],
)


@dataclass(slots=True)
class KernelLog:
    """Lines of the last day or of the run's time; `done` answered them, None where nobody did, for the reason `why`.

    `during` holds the numbers of the lines from the run's own time; `older` counts lines that were passed over.
    """

    done: Completed | None = None
    lines: list[Line] = field(default_factory=list)
    during: set[int] = field(default_factory=set)
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
            return _near(done, *_times(ws))
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


def _times(ws: Workspace) -> tuple[float, float, float]:
    """Now, and between when the run ran, as far as its files tell: from the first that was written to the last."""
    names = [str(f.path) for f in ws.files if f.role in ("log", "config", "metrics") and not f.good][:FILES]
    done = ws.shell([sys.executable, "-I", "-m", "traindoctor.agent.probes.times", *names], 5.0)
    try:
        said = json.loads(done.stdout)
        now = float(said["now"])
        first, last = (float(said[k]) if said[k] is not None else now for k in ("first", "last"))
    except (ValueError, TypeError, KeyError):
        return 0.0, 0.0, float("inf")  # nobody knows: everything counts
    if ws.pids:  # it still runs
        last = now
    return now, max(first, now - OLDEST), last


def _near(done: Completed, now: float, first: float, last: float) -> KernelLog:
    """A line without a time of its own (continued output) belongs to the one above it."""
    log, inside, during = KernelLog(done), True, True
    for line in output_lines(done.stdout):
        stamp = stamp_of(line.text)
        if stamp and stamp.kind == "date":
            inside = stamp.value >= min(now - DAY, first - SLACK)
            during = first - MARGIN <= stamp.value <= last + SLACK
        if inside:
            log.lines.append(line)
            if during:
                log.during.add(line.number)
        else:
            log.older += 1
    return log
