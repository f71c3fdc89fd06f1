"""Lines of NCCL and of PyTorch's process groups, as facts.

NCCL prints `host:pid:tid [device] NCCL INFO ...` and `... file.cc:line (function) NCCL WARN ...`; the watchdog
of PyTorch prints one sentence for each rank with the sequence number, operation and sizes of the work that
did not end; TORCH_DISTRIBUTED_DEBUG=DETAIL prints both fingerprints of a mismatch.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.errors import ParseError
from ..run.files import Line
from ..scan.anchors import patterns

LINE = re.compile(
    r"(?P<host>[\w.-]{1,120}):(?P<pid>\d{1,8}):(?P<tid>\d{1,8}) \[(?P<device>\d{1,4})\]\s*"
    r"(?P<place>\S{1,80}:\d{1,6}(?: \([^)]{1,80}\))?\s)?\s*[NR]CCL (?P<level>INFO|WARN|TRACE) (?P<message>.*)"
)
VERSION = re.compile(
    r"NCCL version:?\s(\d+\.\d+\.\d+)|\bnccl \((\d+), (\d+), (\d+)\)|"
    r"nvidia[-_]nccl[-_]cu\d+\s{0,40}(?:==|\s)\s?(\d+\.\d+\.\d+)|libnccl\.so\.(\d+\.\d+\.\d+)|"
    r"NCCL[ _]?version['\"]?\s?[:=]\s?['\"]?v?(\d+\.\d+\.\d+)|\bnccl[-_/=]v?(\d+\.\d+\.\d+)\b",
    re.IGNORECASE,
)
TIMEOUT = re.compile(r"caught collective operation timeout", re.IGNORECASE)
WORK = re.compile(r"WorkNCCL\((?:[^)]{0,300}?Timeout\(ms\)=\d+|[^)]{0,300})\)")
WORK_FIELD = re.compile(r"(SeqNum|OpType|NumelIn|NumelOut|TensorShape|Timeout\(ms\))=(\[[^\]]*\]|[^,\s)]+)")
RAN = re.compile(r"ran for (\d+) ?m(?:illi)?s")
GROUP_RANK = re.compile(r"\[(?:PG (?:ID )?(?P<group>[^\]\[]{1,120}?) )?Rank (?P<rank>\d{1,6})\]")
PROGRESS = re.compile(
    r"(?:(?:at (?:nccl )?work|work sequence id): (?P<at>\d+)\b.{0,120}?)?"
    r"last enqueued (?:nccl )?work: (?P<enqueued>-?\d+).{0,200}?last completed (?:nccl )?work: (?P<completed>-?\d+)",
    re.IGNORECASE | re.DOTALL,
)
FINGERPRINT = re.compile(
    r"Rank (?P<rank>\d+) is running (?:inconsistent )?collective: CollectiveFingerPrint\("
    r"(?:SequenceNumber=(?P<seq>\d+),? ?)?OpType=(?P<op>\w+)"
    r"(?:, TensorShape=\[(?P<shape>[\d, ]*)\])?(?:, TensorDtypes=(?P<dtype>\w+))?"
)
ASPECT = re.compile(r"Collectives differ in the following aspects:(?P<what>.{0,300})", re.IGNORECASE | re.DOTALL)
ASYNC = re.compile(r"async exception:? (?P<error>.{1,200})", re.IGNORECASE)
CLOSED = re.compile(
    r"connection closed by (?:remote )?peer \[?(?P<a>[\w.:-]+?)\]?(?:<\d+>|:\d+|\b(?![\w.:-]))|"
    r"(?:call to recv from|call to send to|socketProgress\w*: call to \w+ \w+) (?P<b>[\w.-]+)<\d+> failed ?: "
    r"(?:connection reset|broken pipe|connection timed out)|recv from (?P<c>[\w.-]+)<\d+> failed",
    re.IGNORECASE,
)
RESET = re.compile(r"connection (?:reset|closed) by (?:remote )?peer", re.IGNORECASE)
DESYNC = re.compile(
    r"\[(?P<ranks>[\d, ]+)\] (?:finished collective #\d+, but didn'?t join|did ?n.t join) collective", re.IGNORECASE
)
BARRIER_RANKS = re.compile(
    r"Ranks? (?P<ranks>[\d, ]+?) failed to pass monitoredBarrier in (?P<ms>\d+) ?ms", re.IGNORECASE
)
GLOO_WAIT = re.compile(r"timed out waiting (\d+) ?ms for (\w+) operation", re.IGNORECASE)
CLIENTS = re.compile(r"(\d+)/(\d+) clients joined", re.IGNORECASE)
HEARTBEAT = re.compile(r"heartbeat monitor timed out|stuck.{0,40}watchdog|watchdog.{0,60}(?:stuck|hang)", re.IGNORECASE)
WORLD = re.compile(
    r"world[ _]?size['\"]?\s?[:=(]?\s?(\d{1,6})\b|starting with (\d{1,6}) processes|\bnranks (\d{1,6})\b|"
    r"rank \d+ ?/ ?world (\d{1,6})|num_processes['\"]?\s?[:=]\s?(\d{1,6})|total processes\s?[:=]?\s?(\d{1,6})",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Work:
    """The collective a rank waits in. Numbers it does not print are None; `ran_ms` is how long it waited."""

    op: str = ""
    seq: int | None = None
    numel_in: int | None = None
    numel_out: int | None = None
    shape: str = ""
    timeout_ms: int | None = None
    ran_ms: int | None = None
    group: str = ""
    rank: int | None = None


@dataclass(slots=True)
class Progress:
    """What a rank's process group says about its queue: the numbers of NCCL work."""

    rank: int | None
    group: str
    timed_out: int | None
    enqueued: int
    completed: int


@dataclass(slots=True)
class Mismatch:
    """Two fingerprints of one DETAIL report; `kinds` of op, shape, dtype, sequence."""

    kinds: list[str] = field(default_factory=list)
    sides: list[dict[str, str]] = field(default_factory=list)


def version_of(text: str) -> str | None:
    """The NCCL version a line names (`2.26.2`), in any of the usual spellings."""
    if (m := VERSION.search(text)) is None:
        return None
    groups = [g for g in m.groups() if g is not None]
    return ".".join(groups) if len(groups) == 3 else groups[0]


def work_of(text: str) -> Work | None:
    """The `WorkNCCL(...)` of a watchdog line."""
    if (m := WORK.search(text)) is None:
        return None
    fields = dict(WORK_FIELD.findall(m[0]))
    ran = RAN.search(text, m.end())
    group, rank = _who(text)
    return Work(
        op=fields.get("OpType", ""),
        seq=_int(fields.get("SeqNum")),
        numel_in=_int(fields.get("NumelIn")),
        numel_out=_int(fields.get("NumelOut")),
        shape=fields.get("TensorShape", ""),
        timeout_ms=_int(fields.get("Timeout(ms)")),
        ran_ms=int(ran[1]) if ran else None,
        group=group,
        rank=rank,
    )


def _who(text: str) -> tuple[str, int | None]:
    """The process group and the rank that a message of the watchdog names."""
    m = GROUP_RANK.search(text)
    return (m["group"] or "", int(m["rank"])) if m else ("", None)


def progress_of(text: str) -> Progress | None:
    """Last enqueued and last completed work, from either generation of the message."""
    if (m := PROGRESS.search(text)) is None:
        return None
    group, rank = _who(text)
    return Progress(rank, group, _int(m["at"]), int(m["enqueued"]), int(m["completed"]))


def mismatch_of(text: str) -> Mismatch | None:
    """A DETAIL report: who ran what, and in what they differ."""
    sides = [{k: v for k, v in m.groupdict().items() if v is not None} for m in FINGERPRINT.finditer(text)]
    aspect = ASPECT.search(text)
    if len(sides) < 2 and not aspect:
        return None
    kinds = []
    if len(sides) >= 2:
        names = {"op": "op", "shape": "shape", "dtype": "dtype", "seq": "sequence"}
        kinds = [word for key, word in names.items() if sides[0].get(key) != sides[1].get(key)]
    if aspect:
        what = aspect["what"].lower()
        words = {"shape": "shape", "optype": "op", "op type": "op", "dtype": "dtype", "sequence": "sequence"}
        kinds += [word for key, word in words.items() if key in what and word not in kinds]
    return Mismatch(kinds, sides)


def world_size(text: str) -> int | None:
    """The number of processes a line states."""
    m = WORLD.search(text)
    return int(next(g for g in m.groups() if g)) if m else None


def closed_peer(text: str) -> str | None:
    """Host (or address) of the peer that closed the connection; empty when the line does not name it."""
    if m := CLOSED.search(text):
        return next(g for g in m.groups() if g)
    return "" if RESET.search(text) else None


def is_this_machine(peer: str) -> bool:
    """Whether a peer is a process of the same machine, whose end tells nothing of a node."""
    return peer.startswith(("127.", "::1", "localhost", "0:0:0:0:0:0:0:1"))


def ranks_in(listing: str) -> list[int]:
    """`1, 2, 5` -> [1, 2, 5]."""
    return [int(part) for part in listing.replace(",", " ").split() if part.isdigit()]


def _int(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


# ----------
# Reports of nccl-tests and rccl-tests: tables, footers and the JSON report.

OUT_OF_BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)\s*(OK|FAILED)?", re.IGNORECASE)
AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*([\d.]+)", re.IGNORECASE)
FAILURE = re.compile(r"Test (?:NCCL|RCCL|CUDA|HIP) failure \S+ '([^']{1,120})", re.IGNORECASE)
HEADER = re.compile(r"^#\s+size\s+count\s+type\s+redop\s+root\s", re.IGNORECASE)
_NUMBER = r"(-?[\d.]+(?:e[+-]?\d+)?|N/A)"
# size count type redop root | time algbw busbw #wrong, out of place and then in place
ROW = re.compile(
    rf"^\s*(\d+)\s+(\d+)\s+([a-z]\w+)\s+(\w+)\s+(-?\d+)\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}"
    rf"(?:\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER}\s+{_NUMBER})?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One size: bytes, GB/s on the bus and wrong elements, the better of out of place and in place.

    `line` is None for a row of a JSON report, which may be one long line.
    """

    size: int
    bus: float
    wrong: int
    line: Line | None = None


@dataclass(slots=True)
class Report:
    """A JSON report: its rows, and what it says in all, as `footer_of` would."""

    rows: list[Row] = field(default_factory=list)
    told: list[tuple[str, str, Any, str]] = field(default_factory=list)  # the member that says so, key, value, words


def facts_of(table: str, text: str) -> Iterator[tuple[str, str]]:
    """What a line states by the rows of a table of `knowledge/captures.yaml`, as (key without the namespace, value)."""
    for key, pattern in patterns(table):
        if m := pattern.search(text):
            yield key, (m.groupdict().get("v") or m[0]).strip()[:200]


def footer_of(text: str) -> Iterator[tuple[str, int | float | bool | str]]:
    """Footer or error line of nccl-tests, as (key without the namespace, value)."""
    if m := OUT_OF_BOUNDS.search(text):
        yield "test_out_of_bounds", int(m[1])
        yield ("test_failed", f"{int(m[1])} values out of bounds") if int(m[1]) else ("test_passed", True)
    if m := AVERAGE.search(text):
        yield "test_bandwidth", float(m[1])
    if m := FAILURE.search(text):
        yield "test_failed", m[1].strip(" /")


def row_of(text: str, line: Line | None = None) -> Row | None:
    """A row of the table, None for other lines."""
    m = ROW.match(text[:400])
    if m is None:
        return None
    sides = [m.groups()[5:9]] + ([m.groups()[9:13]] if m[10] else [])
    return Row(int(m[1]), max(_number(s[2]) for s in sides), int(sum(_number(s[3]) for s in sides)), line)


def _number(text: Any) -> float:
    """A number as printed; `N/A` (unchecked) is 0."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return 0.0


def is_report(head: bytes) -> bool:
    """Whether a JSON file is a report of nccl-tests, by its first bytes."""
    return b'"average_bus_bandwidth"' in head or (b'"bus_bw"' in head and b'"results"' in head)


def report_of(data: bytes) -> Report:
    """The JSON report.

    Raises:
        ParseError: no JSON, or none of its layout.
    """
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as e:
        raise ParseError(f"no JSON: {str(e)[:100]}") from None
    results = content.get("results") if isinstance(content, dict) else None
    if not isinstance(results, list):
        raise ParseError("no results of nccl-tests")
    found = Report()
    for result in results[:10_000]:
        both = (result.get(key) for key in ("out_of_place", "in_place")) if isinstance(result, dict) else ()
        if sides := [s for s in both if isinstance(s, dict)]:
            best, wrong = (at([_number(s.get(k)) for s in sides]) for at, k in ((max, "bus_bw"), (sum, "nwrong")))
            found.rows.append(Row(int(_number(result.get("size"))), best, int(wrong)))
    errors = content.get("errors")
    errors = [str(e)[:200] for e in errors[:10]] if isinstance(errors, list) else []
    average, bounds = content.get("average_bus_bandwidth"), content.get("out_of_bounds")
    if (average := average.get("bandwidth") if isinstance(average, dict) else average) is not None:
        gb = _number(average)
        found.told.append(("average_bus_bandwidth", "test_bandwidth", gb, f"average bus bandwidth {gb:g} GB/s"))
    if isinstance(bounds, dict):
        wrong, okay = int(_number(bounds.get("count"))), bounds.get("okay")
        good, words = okay if isinstance(okay, bool) else wrong == 0, f"{wrong} values out of bounds"
        key, value = ("test_passed", True) if good and not errors else ("test_failed", words)
        found.told.append(("out_of_bounds", "test_out_of_bounds", wrong, f"{wrong} out of bounds"))
        found.told.append(("out_of_bounds", key, value, f"{words}, okay: {good}"))
    found.told += [("errors", "test_failed", error, error) for error in errors[:6]]
    return found


# ----------
# Trials of the same program with different NCCL versions: tables of outcomes, and logs side by side.

BAD_COUNT = re.compile(r"stall|hang|hung|fail|crash|error|wedge|timeout|deadlock|mismatch", re.IGNORECASE)
GOOD_COUNT = re.compile(r"^(?:ok|pass(?:ed)?|success(?:es)?|completed|finished)$", re.IGNORECASE)
VERDICT = re.compile(r"result|status|outcome|verdict|state", re.IGNORECASE)
BAD_WORD = re.compile(r"stall|hang|hung|fail|crash|error|wedge|timeout|dead|abort|illegal|no\b", re.IGNORECASE)
GOOD_WORD = re.compile(r"\bok\b|pass|success|complete|finish|healthy|clean|yes\b", re.IGNORECASE)
BARE = re.compile(r"^v?(\d+\.\d+\.\d+)\b")


@dataclass(frozen=True, slots=True)
class Trial:
    """One row: which NCCL version, whether it went well."""

    version: str
    ok: bool
    line: Line


def table_trials(lines: list[Line]) -> list[Trial]:
    """Rows of a CSV whose columns name an NCCL version and an outcome; empty when it is no such table."""
    if len(lines) < 2 or "," not in lines[0].text:
        return []
    header = next(csv.reader(io.StringIO(lines[0].text)), [])
    trials = []
    for line in lines[1:]:
        try:
            cells = next(csv.reader(io.StringIO(line.text)), [])
        except csv.Error:
            continue
        row = dict(zip(header, cells, strict=False))
        version, ok = _version(row), _outcome(row)
        if version and ok is not None:
            trials.append(Trial(version, ok, line))
    return trials


def _version(row: dict[str, str]) -> str | None:
    for name, cell in row.items():
        if found := version_of(cell):
            return found
        if "nccl" in name.lower() and (m := BARE.match(cell.strip())):
            return m[1]
    return None


def _outcome(row: dict[str, str]) -> bool | None:
    for name, cell in row.items():
        cell = cell.strip()
        if BAD_COUNT.search(name) and re.fullmatch(r"\d+(?:\.\d+)?%?", cell):
            return float(cell.rstrip("%")) == 0
        if BAD_COUNT.search(name) and cell.lower() in {"true", "false", "yes", "no"}:
            return cell.lower() in {"false", "no"}
    for name, cell in row.items():
        if GOOD_COUNT.match(name.strip()) and cell.strip().lower() in {"true", "false", "yes", "no", "0", "1"}:
            return cell.strip().lower() in {"true", "yes", "1"}
        if VERDICT.search(name) and (BAD_WORD.search(cell) or GOOD_WORD.search(cell)):
            return not BAD_WORD.search(cell)
    return None


FAILED = re.compile(
    r"traceback \(most recent|Error: |illegal memory access|unhandled (?:cuda|system) error|segmentation fault|"
    r"collective operation timeout|NCCL WARN|nccl failure|\bhangs?\b|\bstalled\b|core dumped|FAILED\b",
    re.IGNORECASE,
)
NUMBER = re.compile(r"\d+")


def failure_line(lines: list[Line]) -> Line | None:
    """The first line of a log that states a failure."""
    return next((x for x in lines if FAILED.search(x.text)), None)


def parting(failing: list[Line], passing: list[Line]) -> tuple[Line | None, Line | None]:
    """Where two logs of one program part: the failing one's mention of the point, and the line of the passing one.

    A progress line is one whose text with numbers masked stands in both logs; the first that only the passing log
    reaches is where they part. Lines that state versions or environments are no progress.
    """
    reached = {x.text.strip() for x in failing}
    shapes = {NUMBER.sub("#", x.text.strip()) for x in failing if NUMBER.search(x.text)}
    for beyond in passing:
        text = beyond.text.strip()
        if (
            NUMBER.sub("#", text) in shapes
            and text not in reached
            and not version_of(text)
            and "nccl" not in text.lower()
        ):
            point = re.sub(r"\W+(?:ok|done|passed|success\w*|complete\w*)\W*$", "", text, flags=re.IGNORECASE)
            return next((x for x in failing if len(point) >= 6 and point in x.text), None), beyond
    return None, None


def several_versions(trials: list[Trial]) -> bool:
    """Whether at least one version fails and another one passes."""
    bad = {t.version for t in trials if not t.ok}
    return bool(bad) and bool({t.version for t in trials if t.ok} - bad)
