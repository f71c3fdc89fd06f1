"""Power of the machine: what its cards may draw beside what its supplies carry, and starts without a shutdown."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from ..reading import smi
from ..reading.files import Line, RunFile, holds, lines
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

LARGEST, LARGEST_LOG = 8 << 20, 64 << 20  # bytes of a file that may hold power limits, and of a log that is searched
SUPPLIES, STARTS = b"Max Power Capacity", (b"Linux version ", b"Boot ", b"Reboot", b"- crash ")
SHARE = 0.8  # of a supply; processors, drives, fans and swings above the limit take the rest
BEFORE = 30  # lines before a start in which an orderly shutdown, or another reason for the end, would stand
OF_PROGRAMS = 3  # of those lines; a log of the kernel alone does not show an orderly shutdown
SHOWN = 6
LIMITS = ("enforced.power.limit", "power.limit")
SUPPLY = re.compile(r"^\s*Max Power Capacity:\s*(\d{2,5}) W\s*$")
START = re.compile(
    r"^-+ ?(?:Boot [0-9a-f]{8,32}|Reboot) ?-+$|"
    r"\bkernel: (?:\[ *0\.0+\] )?Linux version \d|^\[ +0\.0+\] Linux version \d"
)
REASON = re.compile(
    r"(?i)shut(?:ting)? ?down|power(?:ing)?[- ]?(?:off|down)|powerkey|reboot|\bhalt|Journal stopped|Stopp(?:ed|ing) |"
    r"signal SIGTERM|panic|\bOops\b|lockup|out of memory|oom-kill|Call Trace|critical temperature|machine check"
)
SESSION_LOST = re.compile(r"^\S{1,32} +\S.{8,90} - crash +\(\d[\d+:]{2,12}\) *$")  # of `last`: no shutdown after it
PROGRAM = re.compile(
    r"^(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}(?:\.\d+)?|\d{4}-\d\d-\d\d[T ]\S{8,40}) \S{1,80} "
    r"(?!kernel\b)[\w./@()-]{1,80}(?:\[\d+\])?: "
)


@tool(emits=("host.power_short", "host.cut_off"), recall=True)
def power_budget(ws: Workspace) -> ToolResult:
    """Compare what the cards may draw with what the power supplies carry, and find starts without a shutdown.

    Use when a machine goes off or reboots under load and no log says why. Reads dmidecode's supplies, the power limits
    that nvidia-smi prints, sessions that `last` ends with a crash, and where a journal begins anew although nothing
    before it ended.
    """
    every = [f for f in ws.by_role("log", "capture", "environment", "other") if not f.good]
    captures = [f for f in every if f.size <= LARGEST_LOG or f.role in ("capture", "other")]
    unread = len(every) - len(captures)
    rest = f"; {unread} log(s) over {LARGEST_LOG >> 20} MiB not searched" if unread else ""
    told_of = [f for f in captures if holds(f.path, (SUPPLIES, *STARTS))]
    supplies = [s for f in told_of for s in _supplies(f)]
    limits = _limits([f for f in captures if f.size <= LARGEST]) if supplies else {}
    evidence = [*_short(ws, supplies, limits), *(e for f in told_of for e in _cut_off(ws, f))]
    if evidence:
        short = next((e for e in evidence if e.key == "host.power_short"), None)
        cut = sum(e.key == "host.cut_off" for e in evidence)
        told = [f"the cards may draw {short.value} of what the supply carries"] if short else []
        told += [f"{cut} start(s) of the machine without a shutdown before"] if cut else []
        return finding("; ".join(told) + rest, evidence)
    if not supplies:
        return not_applicable(f"no power supply and no start of the machine in the run's files{rest}")
    return clean(("the cards' limits fit the supply" if limits else "no power limit of a card is known") + rest)


def _supplies(file: RunFile) -> Iterator[tuple[int, RunFile, Line]]:
    for line in lines(file.path):
        if SUPPLIES in line.data and (m := SUPPLY.match(line.text)):
            yield int(m[1]), file, line


def _limits(files: list[RunFile]) -> dict[int, tuple[float, RunFile, Line]]:
    """The highest limit of each card."""
    highest: dict[int, tuple[float, RunFile, Line]] = {}
    for file in files:
        for r in smi.readings(lines(file.path)):
            watts = r.number if r.field in LIMITS else None
            if watts and watts > highest.get(r.gpu, (0.0,))[0]:
                highest[r.gpu] = (watts, file, r.line)
    return highest


def _short(
    ws: Workspace, supplies: list[tuple[int, RunFile, Line]], limits: dict[int, tuple[float, RunFile, Line]]
) -> Iterator[Evidence]:
    carried = sum(watts for watts, _, _ in supplies)
    drawn = sum(watts for watts, _, _ in limits.values())
    if not carried or drawn < SHARE * carried:
        return
    places = [(file, line) for _, file, line in [*supplies, *limits.values()]]
    for file, line in places[:SHOWN]:
        yield ws.cite(file, line, "host.power_short", round(drawn / carried, 2))


def _cut_off(ws: Workspace, file: RunFile) -> Iterator[Evidence]:
    """Starts with ordinary lines right before them: the machine went off without being told to."""
    before: deque[str] = deque(maxlen=BEFORE)
    found = 0
    for line in lines(file.path):
        if b"- crash " in line.data and SESSION_LOST.match(line.text[:200]):
            found += 1
            if found <= SHOWN:
                yield ws.cite(file, line, "host.cut_off", line.text.strip()[:120])
        elif (b"oot" in line.data or b"Linux version" in line.data) and START.search(line.text[:400]):
            told = sum(PROGRAM.match(text) is not None for text in before)
            if told >= OF_PROGRAMS and found < SHOWN and not any(REASON.search(text) for text in before):
                found += 1
                yield ws.cite(file, line, "host.cut_off", line.text.strip()[:120])
            before.clear()
        elif line.text.strip():
            before.append(line.text[:400])
