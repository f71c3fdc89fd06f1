"""Trials of the same program with different NCCL versions: tables of outcomes, and logs side by side."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .files import Line
from .nccl_lines import version_of

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


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two logs of one program: where the failing one ends, and the point only the other one passes."""

    failed_at: Line | None
    passed: Line | None


def failure_line(lines: list[Line]) -> Line | None:
    """The first line of a log that states a failure."""
    return next((x for x in lines if FAILED.search(x.text)), None)


def contrast(failing: list[Line], passing: list[Line]) -> Contrast:
    """Compare the progress lines of both logs.

    A progress line is one whose text with numbers masked stands in both logs; the first that only the passing
    log reaches is where they part. The failing log's own mention of that point, if any, is `failed_at`.
    """
    reached = {x.text.strip() for x in failing}
    shapes = {_shape(x.text) for x in failing if NUMBER.search(x.text)}
    beyond = next(
        (x for x in passing if _shape(x.text) in shapes and x.text.strip() not in reached and _counts(x.text)), None
    )
    if beyond is None:
        return Contrast(None, None)
    point = re.sub(r"\W+(?:ok|done|passed|success\w*|complete\w*)\W*$", "", beyond.text.strip(), flags=re.IGNORECASE)
    at = next((x for x in failing if len(point) >= 6 and point in x.text), None)
    return Contrast(at, beyond)


def _shape(text: str) -> str:
    return NUMBER.sub("#", text.strip())


def _counts(text: str) -> bool:
    """Whether a line is the program's own progress: it does not just state versions or environments."""
    return version_of(text) is None and "NCCL INFO" not in text and "nccl" not in text.lower()


def several_versions(trials: Iterator[Trial] | list[Trial]) -> bool:
    """Whether at least one version fails and another one passes."""
    found = list(trials)
    bad = {t.version for t in found if not t.ok}
    return bool(bad) and bool({t.version for t in found if t.ok} - bad)
