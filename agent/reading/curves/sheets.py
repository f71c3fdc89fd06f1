"""What small tables beside a run show by their shape alone: knobs without effect, columns that never move, controls."""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from ..run.files import Line

_STEP = re.compile(r"^(step|iter\w*|epoch|time|seed)s?$", re.IGNORECASE)
_REWARD = re.compile(r"reward|score|_func$", re.IGNORECASE)
_CHANGE = re.compile(r"change|delta|diff|drift|moved|update", re.IGNORECASE)
_IDS = re.compile(r"\b(?:sample|data|example|doc)?_?(?:ids?|indices|hash)\b|sample|order", re.IGNORECASE)
_BAD = re.compile(r"\bnan\b|fail|error|crash|diverge|\bxid\b|wrong|corrupt", re.IGNORECASE)
_PLACE = re.compile(r"machine|host|node|server|computer|\bpc\b|system|where|rig|box", re.IGNORECASE)
_OTHER = re.compile(r"\b(?:other|another|different|second|new|spare|unplugged|removed|swapped)\b", re.IGNORECASE)
_SUM = re.compile(
    r"(?i)^\W*rank\W{0,2}(?P<rank>\d+)\W+(?P<name>[\w.]+\W+(?:sum|mean|norm|checksum|hash|md5)\b|checksum|hash)"
    r"\W+(?P<value>\S+)$"
)
_KEY = re.compile(
    r"(?i)^\W*(?P<side>checkpoint|ckpt|state_dict|saved|file|model|network|expected)\s*[:=]\s*(?P<key>[\w.]+\.\w+)\s*$"
)


@dataclass(frozen=True)
class Shown:
    """A key, what it says, and the line of the table that shows it."""

    key: str
    value: object
    line: Line


@dataclass(frozen=True)
class Sheet:
    """A table of at most some hundred rows, by column."""

    columns: list[str]
    rows: list[tuple[Line, dict[str, str]]]

    def numbers(self, column: str) -> list[float] | None:
        """The column as numbers; None where a cell is none."""
        try:
            return [float(row[column]) for _, row in self.rows]
        except ValueError:
            return None


def sheet(lines: list[Line]) -> Sheet | None:
    """Comma-separated lines with a header of names; None for anything else."""
    if not 3 <= len(lines) <= 400 or lines[0].text.count(",") < 1:
        return None
    try:
        cells = [next(csv.reader([line.text]), []) for line in lines]
    except csv.Error:
        return None
    columns = [c.strip() for c in cells[0]]
    if len(set(columns)) < len(columns) or not all(re.match(r"[A-Za-z_]", c) for c in columns):
        return None
    whole = [(x, c) for x, c in zip(lines[1:], cells[1:], strict=True) if len(c) == len(columns)]
    rows = [(x, dict(zip(columns, c, strict=True))) for x, c in whole]
    return Sheet(columns, rows) if len(rows) >= 2 and len(rows) >= len(lines) - 2 else None


def printed(lines: list[Line]) -> Sheet | None:
    """A table in columns of blanks: a line of names, then rows with a number each (as trainers print epochs)."""
    for at, line in enumerate(lines[:20]):
        columns = line.text.split()
        if not 3 <= len(columns) <= 20 or not all(re.fullmatch(r"[A-Za-z_][\w/]*", c) for c in columns):
            continue
        cells = [(x, x.text.split()) for x in lines[at + 1 : at + 200]]
        rows = [(x, dict(zip(columns, c, strict=True))) for x, c in cells if len(c) == len(columns)]
        numeric = all(re.match(r"-?\d", row[columns[1]]) for _, row in rows)
        if len(rows) >= 2 and len(set(columns)) == len(columns) and numeric:
            return Sheet(columns, rows)
    return None


def apart(one: Sheet, other: Sheet) -> Iterator[tuple[bool, Shown]]:
    """Two tables of the same run variants: one number is off by a large factor, all others agree.

    Yields whether the line is of `other`, and what it shows.
    """
    if one.columns != other.columns or len(one.rows) != len(other.rows):
        return
    far, near = [], 0
    for column in one.columns:
        a, b = one.numbers(column), other.numbers(column)
        if a is None or b is None or _STEP.match(column):
            continue
        ratios = [max(x, y) / min(x, y) for x, y in zip(a, b, strict=True) if min(x, y) > 0]
        if ratios and min(ratios) > 20:
            far.append((column, ratios[-1]))
        elif ratios and max(ratios) < 1.05:
            near += 1
    if len(far) == 1 and near >= 2 and re.search(r"loss|acc|perplex|score", far[0][0]):
        for is_other, table in ((False, one), (True, other)):
            for line, _ in table.rows[:3]:
                yield is_other, Shown("variant.one_metric_apart", f"{far[0][0]} by {far[0][1]:.0f}", line)


def shown(table: Sheet) -> Iterator[Shown]:
    """All that one table shows."""
    yield from _without_effect(table)
    yield from _still(table)
    yield from _unchanged(table)
    yield from _repeated(table)
    yield from _controls(table)


def _without_effect(table: Sheet) -> Iterator[Shown]:
    """Rows that differ in a knob alone end in identical results, to the last digit."""
    knob = table.columns[0]
    values = table.numbers(knob)
    steps = next((c for c in table.columns[1:] if _STEP.match(c)), None)
    if _STEP.match(knob) or values is None or len(set(values)) < 2:
        return
    results = [c for c in table.columns[1:] if c != steps and table.numbers(c) is not None]
    by_place: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for _, row in table.rows:
        by_place[row[steps] if steps else ""].add(tuple(row[c] for c in results))
    precise = any(len(row[c].replace(".", "").strip("-0")) >= 4 for _, row in table.rows for c in results)
    if not results or not precise or any(len(v) > 1 for v in by_place.values()):
        return
    last = {row[knob]: line for line, row in table.rows}
    for line in list(last.values())[:4]:
        yield Shown("variant.no_effect", knob, line)


def _still(table: Sheet) -> Iterator[Shown]:
    """One part of a reward is exactly zero throughout while others move."""
    parts = {c: v for c in table.columns if _REWARD.search(c) and (v := table.numbers(c))}
    if len(parts) < 3 or len(table.rows) < 3 or sum(len(set(v)) > 1 for v in parts.values()) < 2:
        return
    for name, values in parts.items():
        if not any(values):
            yield Shown("reward.component_zero", name, table.rows[-1][0])


def _unchanged(table: Sheet) -> Iterator[Shown]:
    """Tensors whose change since the start is exactly zero, in a table where others changed."""
    column = next((c for c in table.columns[1:] if _CHANGE.search(c)), None)
    values = table.numbers(column) if column else None
    if not values or not any(values) or all(values):
        return
    still = [(line, row) for (line, row), v in zip(table.rows, values, strict=True) if v == 0]
    for line, row in [x for x in still if "." in x[1][table.columns[0]]][:3]:
        yield Shown("numerics.tensor_unchanged", row[table.columns[0]], line)


def _repeated(table: Sheet) -> Iterator[Shown]:
    """The same samples at two different steps."""
    step = next((c for c in table.columns if _STEP.match(c)), None)
    ids = next((c for c in table.columns if c != step and _IDS.search(c)), None)
    if not step or not ids:
        return
    first: dict[str, tuple[Line, str]] = {}
    told = 0
    for line, row in table.rows:
        seen = first.setdefault(row[ids], (line, row[step]))
        if seen[1] != row[step] and len(re.findall(r"\w+", row[ids])) >= 3 and told < 2:
            told += 1
            yield Shown("resume.samples_repeated", f"steps {seen[1]} and {row[step]}", seen[0])
            yield Shown("resume.samples_repeated", f"steps {seen[1]} and {row[step]}", line)


def _controls(table: Sheet) -> Iterator[Shown]:
    """Whatever was changed, it fails on one machine; unchanged it works on another, or with less in the machine."""
    place = next((c for c in table.columns if _PLACE.search(c)), None)
    if place is None:
        return
    verdicts = [(line, row, bool(_BAD.search(row[table.columns[-1]]))) for line, row in table.rows]
    bad = [(line, row) for line, row, failed in verdicts if failed]
    good = [(line, row) for line, row, failed in verdicts if not failed]
    tried = {row[table.columns[0]] for _, row in bad}
    moved = [x for x in good if _OTHER.search(x[1][table.columns[0]] + " " + x[1][place])]
    if len(tried) >= 3 and good and len(moved) == len(good):
        for line, row in [*good[:3], *[b for b in bad if "none" not in b[1][table.columns[0]].lower()][:3]]:
            yield Shown("variant.machine_decides", row[place], line)


def by_rank(lines: list[Line]) -> Iterator[Shown]:
    """The same parameter summed on several ranks gives different numbers."""
    sums: dict[str, dict[str, tuple[str, Line]]] = defaultdict(dict)
    for line in lines:
        if m := _SUM.match(line.text.strip()):
            sums[m["name"]].setdefault(m["rank"], (m["value"], line))
    for name, found in sums.items():
        if len({value for value, _ in found.values()}) > 1 and re.search(r"weight|bias|param|model|embed", name):
            for _, line in list(found.values())[:3]:
                yield Shown("rank.parameters_differ", name, line)


def prefixes(lines: list[Line]) -> Iterator[Shown]:
    """A name in a checkpoint and the same name in the model behind another prefix."""
    saved: dict[str, Line] = {}
    for line in lines:
        m = _KEY.match(line.text.strip())
        if not m:
            continue
        if m["side"].lower() not in ("model", "network", "expected"):
            saved[m["key"]] = line
        elif m["key"] not in saved:
            for key, at in saved.items():
                if m["key"].endswith("." + key) or key.endswith("." + m["key"]):
                    yield Shown("files.key_prefix_differs", key, at)
                    yield Shown("files.key_prefix_differs", m["key"], line)
