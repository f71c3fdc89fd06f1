"""The last stamped lines that each rank wrote before a standstill: who is through with its epoch, who still worked.

Under a plain process group (gloo, or a monitored barrier) there is no watchdog that compares ranks. What they wrote
themselves tells as much: a rank whose last word is that its epoch is over waits for the others; one that wrote on
while another already waited was at work.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..run.clocks import Stamp, stamp_of
from ..run.files import Line, RunFile
from ..run.lines import strip
from ..scan.anchors import Hit, anchored, around, excerpt
from ..scan.logpass import logpass
from .failures import failures
from .roster import DONE, roster

if TYPE_CHECKING:
    from ..run.workspace import Workspace

EPOCH = re.compile(r"(?i)\bepoch\b['\"]?\s?[:=#]?\s?\[?(\d{1,6})\b")
COMPUTING = re.compile(
    r"\bbackward\b|\bforward\b|_sync_buffers|_engine_run_backward|_broadcast_coalesced|\ball_reduce\b|_pre_forward"
)
BARRIER = re.compile(r"barrier|wait_for_everyone")
KEPT = 400  # lines of a rank, from its end


@dataclass(frozen=True, slots=True)
class Word:
    """A stamped line that a rank wrote itself."""

    rank: int
    stamp: Stamp
    file: RunFile
    line: Line


def last_words(ws: Workspace) -> dict[int, list[Word]]:
    """Each rank's last stamped lines in the order of their times; times since boot are none."""
    return ws.memo("last_words", lambda: _read(ws))


def _read(ws: Workspace) -> dict[int, list[Word]]:
    found: dict[int, list[Word]] = {}
    for summary in logpass(ws).files.values():
        file, h = summary.file, summary.harvest
        if file.role != "log" or file.good:
            continue
        offset = h.tail_offset
        for number, data in enumerate(h.tail.split(b"\n"), h.tail_line + 1):
            if number == h.tail_line + 1 and h.tail_offset:  # what is kept of the end begins amid a line
                offset += len(data) + 1
                continue
            text = data[:600].decode(errors="replace")
            stamp = stamp_of(text)
            rank = None if stamp is None else file.rank if file.rank is not None else strip(text).rank
            if stamp is not None and rank is not None and stamp.kind != "uptime":
                found.setdefault(rank, []).append(Word(rank, stamp, file, Line(number, offset, data)))
            offset += len(data) + 1
    return {r: sorted(words, key=lambda w: w.stamp.value)[-KEPT:] for r, words in sorted(found.items())}


def early_leavers(ws: Workspace) -> tuple[list[Word], list[Word]]:
    """Ranks whose last word is the end of an epoch, and those that are still in the midst of that epoch.

    Only where every rank tells the ends of its epochs: one that never did may have said nothing of this one either,
    unless a rank other than the first tells it, since then it is not a thing that the first alone prints.
    """
    words = last_words(ws)
    ends = {
        rank: [w for w in told if DONE.search(w.line.text) and EPOCH.search(w.line.text)]
        for rank, told in words.items()
    }
    last = {rank: told[-1] for rank, told in words.items()}
    done = [last[r] for r, told in ends.items() if told and told[-1] is last[r]]
    if not done or len(words) < 2:
        return [], []
    epoch = max(_epoch(w) for w in done)
    behind = [
        w for r, w in last.items()
        if EPOCH.search(w.line.text) and _epoch(w) == epoch and not any(_epoch(e) == epoch for e in ends[r])
    ]  # fmt: skip
    done = [w for w in done if _epoch(w) == epoch]
    told_by_all = any(w.rank != 0 for w in done) or all(ends[w.rank] for w in behind)
    return (done, behind) if done and behind and told_by_all else ([], [])


def _epoch(word: Word) -> int:
    found = EPOCH.findall(word.line.text)
    return int(found[-1]) if found else -1


def stood_apart(ws: Workspace, behind: list[Word]) -> bool:
    """Whether those that are behind stood in a step of training: by their tracebacks, or by stacks that were dumped.

    Of dumped stacks some must stand in a barrier and others in a step.
    """
    own = [u for u in failures(ws).units if u.rank in {w.rank for w in behind} and u.frames]
    if own:
        names = [f.text for u in own for f in u.frames]
        return any(COMPUTING.search(n) for n in names) and not any(BARRIER.search(n) for n in names)
    dumps = ["\n".join(x.text for x in excerpt(ws, f, "stack", after=16 << 10)) for f in anchored(ws).files("stack")]
    return any(BARRIER.search(d) for d in dumps) and any(COMPUTING.search(d) and not BARRIER.search(d) for d in dumps)


def at_work(ws: Workspace, waiting: int, limit_ms: int) -> list[Word]:
    """Last words of ranks that wrote late in the wait of one that had said its own last before."""
    words = last_words(ws)
    if waiting not in words or limit_ms <= 0:
        return []
    since = words[waiting][-1].stamp
    late = []
    for rank, told in words.items():
        apart = told[-1].stamp.value - since.value
        if rank != waiting and told[-1].stamp.kind == since.kind and limit_ms / 2000 <= apart <= 1.5 * limit_ms / 1000:
            late.append(told[-1])
    return late


# ----------
# Ranks that kept working while the others already waited for them in a collective: late, neither dead nor stuck.

ABOVE = 48 << 10  # bytes above the first report in which lines of a late rank are looked for
ZONE = 1800.0  # clocks of one machine differ by whole half hours where one of them prints UTC
DAY = 86400.0
NAMES_RANK = re.compile(r"(?i)(?:\brank ?[=:#]? ?|\[|\()(?P<rank>\d{1,6})(?:\]|\b(?: ?/ ?\d+\))?)")


def working(ws: Workspace, ranks: Iterable[int], report: Hit, limit_ms: int) -> dict[int, tuple[RunFile, Line]]:
    """The last line of each given rank that was written while the reporting one waited, late in its wait.

    A rank that died wrote nothing in that time; one stuck in its own code wrote nothing late in it.
    """
    told = stamp_of(report.text)
    found: dict[int, tuple[RunFile, Line]] = {}
    if told is None or limit_ms <= 0:
        return found
    own = roster(ws).members
    shared = around(ws, report, before=ABOVE, after=0)[:-1]
    for rank in ranks:
        member = own.get(rank)
        places = [(report.file, line) for line in reversed(shared) if _of(line.text) == rank]
        if member is not None and member.last is not None:
            places.append((member.file, member.last))
        for file, line in places[:1]:
            if _late(stamp_of(line.text), told, limit_ms / 1000):
                found[rank] = (file, line)
    return found


def _of(text: str) -> int | None:
    """The rank that a stamped line names right behind its stamp; other numbers of a line name nobody."""
    stamp = stamp_of(text)
    if stamp is None:
        return None
    behind = text.split(stamp.text, 1)[-1][:60]
    m = NAMES_RANK.search(behind)
    return int(m["rank"]) if m and "rank" in behind[: m.end()].lower() else None


def _late(line: Stamp | None, told: Stamp, limit: float) -> bool:
    """Whether a line was written in the last half of the wait that ended with `told`."""
    if line is None or "uptime" in (line.kind, told.kind):
        return False
    apart = (told.value - line.value) % DAY
    if apart <= limit / 2:
        return line.kind != told.kind or told.value >= line.value
    return line.kind != told.kind and apart % ZONE <= min(limit / 5, 120.0)
