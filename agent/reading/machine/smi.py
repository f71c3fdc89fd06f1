"""What nvidia-smi prints: query CSV (with or without header), `-q` sections, its XML, the plain table, nvlink counters.

Whatever the form, a `Reading` is one field of one GPU with the line it stands on. Fields are named as
`nvidia-smi --query-gpu` names them now; what the trees of `-q` and `-q -x` call them is a table of
`knowledge/captures.yaml`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from xml.parsers import expat

from ..run.files import Line
from ..scan.anchors import patterns

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
    r"^\|\s*(?:\d+%|N/A|ERR!)\s+(\d+)C\s+\S+\s+(\d+)W / \s*(\d+)W\s*\|\s+(\d+)MiB /\s*(\d+)MiB\s*\|\s+(\d+)%"
)
TABLE_FIELDS = ("temperature.gpu", "power.draw", "enforced.power.limit", "memory.used", "memory.total",
                "utilization.gpu")  # fmt: skip
TABLE_PROCESS = re.compile(
    r"^\|\s+(?P<index>\d+)\s+(?:\S+\s+\S+\s+)?(?P<pid>\d{2,8})\s+(?P<type>[CGM+]+)\s+(?P<name>\S.{0,60}?)\s+(?P<used>\d+)MiB\s*\|"
)
NVLINK = re.compile(r"Link (?P<link>\d+):\s*(?P<kind>Replay|Recovery|CRC)\w* Errors?:\s*(?P<count>\d+)", re.IGNORECASE)
_RESERVED = (
    "fb_memory_usage/reserved"  # with it, a listing says that nobody else holds memory; `-q` is read without that
)
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
                yield _process(-1, dict(zip(fields, cells, strict=True)), line)  # its card stands there as a uuid
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


def _process(gpu: int, said: dict[str, str], line: Line) -> Reading:
    used = said.get("used_memory", said.get("used_gpu_memory", "?")).removesuffix("MiB").strip()
    return Reading(gpu, "process", f"{said.get('pid', '?')} {said.get('process_name', '?')} {used} MiB", line)


def _field(name: str) -> str:
    return name.replace("clocks_throttle_reasons", "clocks_event_reasons").replace("gpu_name", "name")


def _table(text: str, line: Line) -> Iterator[Reading]:
    """Two lines a GPU in the plain output; the second carries no index."""
    if m := TABLE_GPU.match(text):
        yield Reading(int(m["index"]), "name", m["name"], line)
        yield Reading(int(m["index"]), "ecc.errors.uncorrected.volatile.total", m["ecc"], line)
    elif m := TABLE_USE.match(text):
        yield from (Reading(-1, name, value, line) for name, value in zip(TABLE_FIELDS, m.groups(), strict=True))
    elif m := TABLE_PROCESS.match(text):
        yield Reading(int(m["index"]), "process", f"{m['pid']} {m['name']} {m['used']} MiB", line)


def _leaf(gpu: int, path: str, value: str, line: Line) -> Iterator[Reading]:
    """A leaf of the tree that `-q` prints, as text or XML, where it is a field we know."""
    for field, pattern in patterns("gpu_fields"):
        if m := pattern.search(path):
            yield Reading(gpu, m.expand(field), value, line)
            return


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
    full = "/".join(re.sub(r"\W+", "_", name.lower()) for name in [*(name for _, name in path), m["name"]])
    if full != _RESERVED:
        yield from _leaf(gpu, full, m["value"], line)


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


# ----------
# `nvidia-smi -q -x`: readings of an XML capture, with the line each value stands on.
#
# Expat without entities: a document that declares one is refused, so that nothing can be expanded.

DEPTH, LIMIT = 24, 4 << 20  # elements within each other; bytes of one document


def is_xml(lines: list[Line]) -> bool:
    """Whether these lines are such a document."""
    head = " ".join(line.text for line in lines[:8])
    return "<nvidia_smi_log" in head or ("nvidia_smi_log" in head and "<?xml" in head)


def read(lines: list[Line]) -> tuple[list[Reading], str]:
    """Readings of what nvidia-smi printed, and why reading ended early (empty where all of it was read)."""
    if not is_xml(lines):
        return list(readings(lines)), ""
    start = next((i for i, line in enumerate(lines) if line.text.lstrip().startswith("<")), 0)
    document = b"\n".join(line.data for line in lines[start:])
    if len(document) > LIMIT:
        return [], f"XML of more than {LIMIT >> 20} MiB"
    reader = _Xml({line.number: line for line in lines}, lines[start].number - 1)
    try:
        reader.parser.Parse(document, True)
    except expat.ExpatError as e:
        return reader.found, f"broken XML: {e}"
    except _Refused as e:
        return reader.found, str(e)
    return reader.found, ""


class _Refused(Exception):
    """The document asks for something that a capture never needs."""


class _Xml:
    def __init__(self, lines: dict[int, Line], shift: int) -> None:
        self.lines, self.found, self.shift = lines, list[Reading](), shift
        self.gpu, self.path, self.text = -1, list[str](), list[str]()
        self.process: dict[str, str] = {}
        self.process_line: Line | None = None
        self.parser = expat.ParserCreate()
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self.text.append
        self.parser.EntityDeclHandler = self._entity

    def _entity(self, *_: object) -> None:
        raise _Refused("the XML declares entities: refused")

    def _start(self, name: str, _attributes: dict[str, str]) -> None:
        if len(self.path) >= DEPTH:
            raise _Refused(f"XML nested deeper than {DEPTH}: refused")
        if name == "gpu" and len(self.path) == 1:
            self.gpu += 1
        if name == "process_info":
            self.process = {}
        self.path.append(name)
        self.text.clear()

    def _end(self, name: str) -> None:
        value = "".join(self.text).strip()
        below = "/".join(self.path[2:]) if self.path[1:2] == ["gpu"] else ""
        self.path.pop()
        self.text.clear()
        line = self.lines.get(self.parser.CurrentLineNumber + self.shift)
        if line is None or not below or "mig_devices" in below:
            return
        if name == "process_info":
            self.found.append(_process(self.gpu, self.process, self.process_line or line))
        elif below.startswith("processes/"):
            self.process[name] = value
            self.process_line = line if name == "pid" else self.process_line
        elif value:
            self.found += _leaf(self.gpu, below, value, line)
