"""Captures of nvidia-smi: query CSV (with or without header), `-q` sections, the plain table, nvlink counters.

Every reader yields `Reading`s: one field of one GPU with the line it stands on. Field names follow
`nvidia-smi --query-gpu`; `clocks_throttle_reasons` is the older name of `clocks_event_reasons`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .files import Line

QUERY = re.compile(r"--query-(?:gpu|remapped-rows|compute-apps)=(?P<fields>[\w.,]+)")
KNOWN = re.compile(
    r"^(?:index|name|uuid|timestamp|pstate|driver_version|gpu_name|(?:utilization|memory|temperature|power|clocks|ecc|pcie|fabric|"
    r"remapped_rows|retired_pages|pid|process_name|used_gpu_memory|gpu_uuid|gpu_bus_id|clocks_event_reasons|clocks_throttle_reasons|enforced|mig)[\w.]*|gpu_recovery_action)$"
)
NOT_A_NUMBER = re.compile(r"\[?(?:N/A|Not Supported|Unknown Error|ERR!)\]?", re.IGNORECASE)
SECTION = re.compile(r"^(?P<indent>\s*)(?P<name>[A-Za-z][\w ()/.-]{1,60}?)\s*(?::\s*(?P<value>.*?))?\s*$")
TABLE_GPU = re.compile(
    r"^\|\s+(?P<index>\d{1,3})\s+(?P<name>\S.{2,40}?)\s+(?:On|Off)\s+\|\s+(?P<bus>[0-9A-F:.]{8,20})\s+\S+\s+\|\s+(?P<ecc>\S+)\s*\|"
)
TABLE_USE = re.compile(
    r"^\|\s*(?:\d+%|N/A|ERR!)\s+(?P<temperature>\d+)C\s+\S+\s+(?P<power>\d+)W / \s*(?P<cap>\d+)W\s*\|"
    r"\s+(?P<used>\d+)MiB /\s*(?P<total>\d+)MiB\s*\|\s+(?P<utilization>\d+)%"
)
TABLE_PROCESS = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d{2,8})\s+(?P<type>[CGM+]+)\s+(?P<name>\S.{0,60}?)\s+(?P<used>\d+)MiB\s*\|"
)
NVLINK = re.compile(r"Link (?P<link>\d+):\s*(?P<kind>Replay|Recovery|CRC)\w* Errors?:\s*(?P<count>\d+)", re.IGNORECASE)
POLL_PERCENT = re.compile(r"\b(\d{1,3}) ?%")
POLL_WATTS = re.compile(r"((?:\d{2,4}(?:\.\d+)? ?/ ?)*\d{2,4}(?:\.\d+)?) ?W\b")
POLL_CLOCK = re.compile(r"\b(\d{3,4}) ?MHz")


@dataclass(frozen=True, slots=True)
class Reading:
    """One field of one GPU (`gpu` is its place in the listing, not a rank), as text without its unit."""

    gpu: int
    field: str
    text: str
    line: Line

    @property
    def number(self) -> float | None:
        """The number in the text; None for N/A and words."""
        m = re.match(r"\s*(-?\d+(?:\.\d+)?)", self.text)
        return float(m[1]) if m and not NOT_A_NUMBER.search(self.text) else None

    @property
    def active(self) -> bool:
        return self.text.strip().lower() in {"active", "yes", "1"}


def readings(lines: Iterable[Line]) -> Iterator[Reading]:
    """All readings of a capture file, whichever forms it mixes."""
    fields: list[str] = []
    gpu = -1
    seen_gpus = 0
    path: list[tuple[int, str]] = []
    for line in lines:
        text = line.text.rstrip()
        if m := QUERY.search(text):
            fields, gpu, path = m["fields"].split(","), -1, []
            continue
        if header := _header(text):
            fields, gpu = header, -1
            continue
        if text.startswith("$") or not text.strip():
            fields = []
        cells = _row(text, fields)
        if cells:
            gpu += 1
            if "pid" in fields:
                yield _process(dict(zip(fields, cells, strict=True)), line)
                continue
            yield from (Reading(gpu, _field(f), c, line) for f, c in zip(fields, cells, strict=False))
            continue
        if m := re.match(r"^GPU ([0-9A-Fa-f:.]{8,20})$", text):
            seen_gpus += 1
            path = []
        yield from _table(text, line)
        if not text.startswith("|"):
            yield from _section(text, line, path, max(0, seen_gpus - 1))


def _header(text: str) -> list[str]:
    """`index, utilization.gpu [%], ...` as field names; empty when it is no header."""
    names = [re.sub(r"\s*[\[(].*$", "", part).strip() for part in text.lstrip("# ").split(",")]
    known = sum(bool(KNOWN.match(n)) for n in names)
    return names if len(names) >= 2 and known >= 2 and known >= len(names) - 1 else []


def _row(text: str, fields: list[str]) -> list[str]:
    if not fields or ("," not in text and len(fields) > 1):
        return []
    try:
        cells = [c.strip() for c in next(csv.reader(io.StringIO(text), skipinitialspace=True), [])]
    except csv.Error:
        return []
    return cells if len(cells) == len(fields) else []


def _process(cells: dict[str, str], line: Line) -> Reading:
    """A row of `--query-compute-apps`; which card it is on stands there only as its uuid."""
    used = cells.get("used_memory", cells.get("used_gpu_memory", "?")).removesuffix("MiB").strip()
    return Reading(-1, "process", f"{cells['pid']} {cells.get('process_name', '?')} {used} MiB", line)


def _field(name: str) -> str:
    return name.replace("clocks_throttle_reasons", "clocks_event_reasons").replace("gpu_name", "name")


def _table(text: str, line: Line) -> Iterator[Reading]:
    """Two lines a GPU in the plain output; the second carries no index."""
    if m := TABLE_GPU.match(text):
        yield Reading(int(m["index"]), "name", m["name"], line)
        yield Reading(int(m["index"]), "ecc.errors.uncorrected.volatile.total", m["ecc"], line)
    elif m := TABLE_USE.match(text):
        for name, key in (
            ("temperature.gpu", "temperature"), ("power.draw", "power"), ("enforced.power.limit", "cap"),
            ("memory.used", "used"), ("memory.total", "total"), ("utilization.gpu", "utilization"),
        ):  # fmt: skip
            yield Reading(-1, name, m[key], line)
    elif m := TABLE_PROCESS.match(text):
        yield Reading(int(m["index"]), "process", f"{m['pid']} {m['name']} {m['used']} MiB", line)


# last words of a `-q` path -> field, where the value itself is what counts
_SECTION_FIELDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), field)
    for pattern, field in (
        (r"product name$", "name"),
        (r"remapped rows/.*pending$", "remapped_rows.pending"),
        (r"remapped rows/.*remapping failure occurred$", "remapped_rows.failure"),
        (r"remapped rows/.*uncorrectable error$", "remapped_rows.uncorrectable"),
        (r"ecc errors/volatile/.*uncorrectable(?: parity| sec-ded)?$", "ecc.errors.uncorrected.total"),
        (r"ecc errors/aggregate/.*uncorrectable(?: parity| sec-ded)?$", "ecc.errors.uncorrected.aggregate.total"),
        (r"ecc errors/.*double bit.*total$", "ecc.errors.uncorrected.total"),
        (r"(?:event|throttle) reasons/.*hw slowdown$", "clocks_event_reasons.hw_slowdown"),
        (r"(?:event|throttle) reasons/.*hw thermal slowdown$", "clocks_event_reasons.hw_thermal_slowdown"),
        (r"(?:event|throttle) reasons/.*hw power brake(?: slowdown)?$", "clocks_event_reasons.hw_power_brake_slowdown"),
        (r"(?:event|throttle) reasons/.*sw thermal slowdown$", "clocks_event_reasons.sw_thermal_slowdown"),
        (r"(?:event|throttle) reasons/.*sw power cap(?:ping)?$", "clocks_event_reasons.sw_power_cap"),
        (r"gpu recovery action$", "gpu_recovery_action"),
        (r"fb memory usage/used$", "memory.used"),
        (r"fb memory usage/total$", "memory.total"),
        (r"persistence mode$", "persistence_mode"),
        (r"mig mode/current$", "mig.mode.current"),
        (r"(?:enforced|current) power limit$", "enforced.power.limit"),
        (r"default power limit$", "power.default_limit"),
        (r"pcie generation/current$", "pcie.link.gen.current"),
        (r"pcie generation/max$", "pcie.link.gen.max"),
        (r"link width/current$", "pcie.link.width.current"),
        (r"link width/max$", "pcie.link.width.max"),
        (r"gpu current temp$", "temperature.gpu"),
        (r"utilization/gpu$", "utilization.gpu"),
        (r"clocks/sm$", "clocks.current.sm"),
        (r"max clocks/sm$", "clocks.max.sm"),
        (r"fabric/status$", "fabric.status"),
        (r"pages pending(?: blacklist| retirement)?$|pending page blacklist$", "retired_pages.pending"),
    )
)


def _section(text: str, line: Line, path: list[tuple[int, str]], gpu: int) -> Iterator[Reading]:
    """`-q`: sections by indentation, `name : value` leaves; `path` is kept by the caller between lines."""
    m = SECTION.match(text)
    if m is None or len(text) > 200:
        return
    depth = len(m["indent"].expandtabs(8))
    while path and path[-1][0] >= depth:
        path.pop()
    if m["value"] is None or m["value"] == "":
        path.append((depth, m["name"]))
        return
    if not path and ":" not in text:
        return
    full = "/".join([name for _, name in path] + [m["name"]])
    for pattern, field in _SECTION_FIELDS:
        if pattern.search(full) and (path or field in {"name", "gpu_recovery_action", "persistence_mode"}):
            yield Reading(gpu, field, m["value"], line)
            return


def polls(lines: Iterable[Line]) -> list[tuple[Line, list[int], list[float], list[int]]]:
    """Free-form polls (`task0  100 %  262.9 / 244.6 W  all 1950 MHz`): line, percents, watts, clocks."""
    found = []
    for line in lines:
        text = line.text[:500]  # a poll is short; on long lines the list of watts would cost quadratic time
        percents = [int(p) for p in POLL_PERCENT.findall(text) if int(p) <= 100]
        watts = [float(w) for group in POLL_WATTS.findall(text) for w in re.findall(r"\d+(?:\.\d+)?", group)]
        if percents and watts and "|" not in text:
            found.append((line, percents, watts, [int(c) for c in POLL_CLOCK.findall(text)]))
    return found
