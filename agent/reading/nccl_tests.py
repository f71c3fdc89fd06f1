"""Reports of nccl-tests and rccl-tests: tables, footers and the JSON report."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from ..errors import ParseError

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


@dataclass(slots=True)
class TestFacts:
    """What one line of an nccl-tests report states."""

    wrong: int | None = None
    average: float | None = None  # GB/s
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One size: bytes, microseconds, GB/s on the bus and wrong elements, the better of out of place and in place."""

    size: int
    microseconds: float
    bus: float
    wrong: int


@dataclass(slots=True)
class Report:
    """A JSON report. `average` in GB/s; `okay` is its own judgement of the values."""

    rows: list[Row] = field(default_factory=list)
    average: float | None = None
    wrong: int | None = None
    okay: bool | None = None
    errors: list[str] = field(default_factory=list)


def facts_of(text: str) -> TestFacts:
    """Footer or error line of nccl-tests as facts; all None for other lines."""
    wrong = OUT_OF_BOUNDS.search(text)
    average = AVERAGE.search(text)
    failure = FAILURE.search(text)
    return TestFacts(
        int(wrong[1]) if wrong else None,
        float(average[1]) if average else None,
        failure[1].strip(" /") if failure else None,
    )


def row_of(text: str) -> Row | None:
    """A row of the table, None for other lines."""
    m = ROW.match(text[:400])
    if m is None:
        return None
    sides = [m.groups()[5:9]] + ([m.groups()[9:13]] if m[10] else [])
    bus = [(_number(s[2]), _number(s[0])) for s in sides]
    best = max(bus, key=lambda b: b[0])
    return Row(int(m[1]), best[1], best[0], int(sum(_number(s[3]) for s in sides)))


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
        if isinstance(result, dict):
            sides = [s for key in ("out_of_place", "in_place") if isinstance(s := result.get(key), dict)]
            if sides:
                best = max(sides, key=lambda s: _number(s.get("bus_bw")))
                wrong = int(sum(_number(s.get("nwrong")) for s in sides))
                found.rows.append(
                    Row(int(_number(result.get("size"))), _number(best.get("time")), _number(best.get("bus_bw")), wrong)
                )
    bounds = content.get("out_of_bounds")
    if isinstance(bounds, dict):
        found.wrong = int(_number(bounds.get("count")))
        found.okay = bounds.get("okay") if isinstance(bounds.get("okay"), bool) else None
    average = content.get("average_bus_bandwidth")
    average = average.get("bandwidth") if isinstance(average, dict) else average
    found.average = _number(average) if average is not None else None
    errors = content.get("errors")
    found.errors = [str(e)[:200] for e in errors[:10]] if isinstance(errors, list) else []
    return found
