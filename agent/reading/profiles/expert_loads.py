"""How many tokens each expert got: lists printed in logs, a series for each expert, histograms in JSON lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..curves.curves import Curves, line_at
from ..curves.series import Series
from ..run.files import Line, RunFile
from ..run.records import json_rows, small_enough

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_LIST = re.compile(
    rb"(?i)((?:tokens?[ _/.-]*per[ _/.-]*(?:local[ _/.-]*)?expert|expert[ _/.-]*(?:load|usage|counts?|tokens|histogram"
    rb"|utili[sz]ation|fractions?)|router[ _/.-]*(?:load|counts?)|dispatch[ _/.-]*counts?|num[ _/.-]*tokens[ _/.-]*per"
    rb"[ _/.-]*expert)s?(?:[ _/.-]*layer[ _/.-]*\d+)?)[\"']?\s*[:=]?\s*(?:tensor\()?\[([\d.,\s eE+-]{3,8000})\]"
)
_LAYER = re.compile(rb"(?i)\blayers?[ _./=:\"]*(\d+)")
_STEP = re.compile(rb"(?i)\b(?:global_?)?(?:step|iter(?:ation)?)s?[\"']?[ =:#]+(\d+)")
_ONE = re.compile(
    r"(?i)^(?P<stem>.*?)expert[ _./-]*(?P<number>\d+)"
    r"(?P<rest>(?:[ _./-]+(?:load|usage|tokens?|count|fraction|share|utili[sz]ation))?)$"
)
_PER = re.compile(
    r"(?i)^(?P<stem>.*?(?:tokens?_per_expert|expert_(?:load|usage|tokens?|counts?|fraction|utili[sz]ation)s?))"
    r"[ _./-]+(?:e|expert)?[ _./-]*(?P<number>\d+)$"
)
_LAYER_COLUMN = frozenset({"layer", "layer_idx", "layer_id", "layer_index", "block"})
_LEAST = 2  # experts in a list or table that is believed
_FILE_LIMIT = 256 << 20
_KEPT = 4096  # loads kept for each layer of a file: the newest


@dataclass(frozen=True, slots=True)
class Load:
    """Tokens (or shares) of each expert at one moment.

    `layer` is as the log names it. `line` is the line that shows it (of the last expert, where each has its own).
    """

    file: RunFile
    line: Line
    layer: str
    step: int | None
    counts: np.ndarray
    rank: int | None = None

    @property
    def cv(self) -> float:
        """Standard deviation over mean."""
        mean = float(self.counts.mean())
        return float(self.counts.std()) / mean if mean > 0 else 0.0

    @property
    def most(self) -> float:
        """The busiest expert against the mean."""
        mean = float(self.counts.mean())
        return float(self.counts.max()) / mean if mean > 0 else 0.0

    @property
    def dead(self) -> int:
        """Experts without a token."""
        return int((self.counts == 0).sum())


def printed_loads(ws: Workspace) -> list[Load]:
    """Every list of tokens per expert in logs and metrics; the newest of each layer are kept where there are many."""
    return ws.memo("expert_loads", lambda: list(_printed(ws)))


def _printed(ws: Workspace) -> Iterator[Load]:
    for file in ws.by_role("log", "metrics", "capture", "other"):
        if file.good or "tfevents" in file.path.name:
            continue
        if not any(b"xpert" in block or b"outer" in block for block in _start(ws, file)):
            continue
        if not small_enough(ws, file, _FILE_LIMIT):
            continue
        by_layer: dict[str, list[Load]] = {}
        for line in ws.lines(file):
            if b"[" in line.data and (found := _LIST.search(line.data)):
                load = _load(file, line, found)
                if load is not None:
                    held = by_layer.setdefault(load.layer, [])
                    held.append(load)
                    if len(held) > _KEPT:
                        del held[: _KEPT // 2]
        for held in by_layer.values():
            yield from held


def _start(ws: Workspace, file: RunFile) -> Iterator[bytes]:
    """All of a file, or the start of one that is too large: what its lines are about shows there."""
    return ws.blocks(file) if file.size <= _FILE_LIMIT else iter([ws.read(file)])


def _load(file: RunFile, line: Line, found: re.Match[bytes]) -> Load | None:
    try:
        counts = np.array([float(x) for x in re.split(rb"[,\s]+", found[2].strip()) if x], dtype=np.float64)
    except ValueError:
        return None
    if len(counts) < _LEAST or not np.isfinite(counts).all() or counts.min() < 0 or counts.sum() <= 0:
        return None
    layer, step = _LAYER.search(line.data), _STEP.search(line.data)
    return Load(
        file, line, layer[1].decode() if layer else "", int(step[1]) if step else None, counts, file.rank
    )  # fmt: skip


def series_loads(found: Curves) -> list[Load]:
    """The last value of every expert where each is a curve of its own (`moe/layer_0/expert_3_load`)."""
    tables: dict[tuple[str, str, int | None], dict[int, Series]] = {}
    layers = {(s.file.name, s.rank): s for s in found.series if s.raw.lower() in _LAYER_COLUMN}
    for s in found.series:
        if s.file.good or s.metric in ("expert_max", "expert_min", "expert_mean"):
            continue
        if (named := expert_name(s.raw)) and s.finite.any():
            tables.setdefault((s.file.name, named[0], s.rank), {})[named[1]] = s
    loads = []
    for (name, stem, rank), experts in tables.items():
        if (column := layers.get((name, rank))) is not None:
            loads += _by_layer(column, experts, rank)
            continue
        counts = _counted({n: float(s.values[s.finite][-1]) for n, s in experts.items()})
        if counts is None:
            continue
        at = max(experts.values(), key=lambda s: s.values[s.finite][-1])
        index = int(np.flatnonzero(at.finite)[-1])
        line = line_at(at, index) if "tfevents" not in at.file.path.name else Line(0, 0, b"")
        loads.append(Load(at.file, line, _layer(stem), int(at.steps[index]) if at.stepped else None, counts, rank))
    return loads


def _by_layer(column: Series, experts: dict[int, Series], rank: int | None) -> Iterator[Load]:
    """The last row of each layer of a table that has a row for each layer and step."""
    rows: dict[float, int] = {}
    for line, layer in zip(column.lines.tolist(), column.values.tolist(), strict=True):
        rows[layer] = line
    for layer, last in rows.items():
        at = {n: np.flatnonzero(s.lines == last) for n, s in experts.items()}
        if not all(len(i) for i in at.values()):
            continue
        counts = _counted({n: float(s.values[at[n][-1]]) for n, s in experts.items()})
        if counts is not None:
            s, index = next(iter(experts.values())), int(next(iter(at.values()))[-1])
            step = int(s.steps[index]) if s.stepped else None
            yield Load(s.file, line_at(s, index), f"{layer:g}", step, counts, rank)


def row_loads(ws: Workspace) -> list[Load]:
    """The same out of JSON lines, row by row."""
    found: dict[tuple[str, str], list[Load]] = {}
    for row in json_rows(ws, b"xpert"):
        tables: dict[str, dict[int, float]] = {}
        for key, value in row.numbers.items():
            if named := expert_name(key):
                tables.setdefault(named[0], {})[named[1]] = value
        for stem, experts in tables.items():
            counts = _counted(experts)
            if counts is not None:
                held = found.setdefault((row.file.name, stem), [])
                held.append(Load(row.file, row.line, _layer(stem), row.step, counts, row.file.rank))
                if len(held) > _KEPT:
                    del held[: _KEPT // 2]
    return [load for held in found.values() for load in held]


def expert_name(raw: str) -> tuple[str, int] | None:
    """What a metric's name says beside the number of the expert, and that number; None where it names none."""
    named = _PER.match(raw) or _ONE.match(raw)
    return (named["stem"] + (named.groupdict().get("rest") or ""), int(named["number"])) if named else None


def _counted(experts: dict[int, float]) -> np.ndarray | None:
    """Values of consecutive experts in their order; None where they are no loads."""
    numbers = sorted(experts)
    if len(numbers) < _LEAST or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return None
    counts = np.array([experts[n] for n in numbers])
    return counts if np.isfinite(counts).all() and counts.min() >= 0 and counts.sum() > 0 else None


def _layer(stem: str) -> str:
    layer = re.search(r"(?i)layers?[ _./-]*(\d+)", stem)
    return layer[1] if layer else stem


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of one layer over the last quarter of what was counted. `dead`: experts without any token there."""

    last: Load
    cv: float
    most: float
    dead: tuple[int, ...]
    text: str


def balances(loads: list[Load]) -> list[Balance]:
    """Loads joined by file, layer and number of experts."""
    groups: dict[tuple, list[Load]] = {}
    for load in loads:
        groups.setdefault((load.file.name, load.layer, load.rank, len(load.counts)), []).append(load)
    found = []
    for held in groups.values():
        late = held[-max(1, len(held) // 4) :]
        joined = Load(late[-1].file, late[-1].line, late[-1].layer, late[-1].step, _shares(late), late[-1].rank)
        dead = tuple(int(i) for i in np.flatnonzero(joined.counts == 0))
        name = f"layer {joined.layer}" if joined.layer.isdigit() else joined.layer or joined.file.name
        gone = f", {len(dead)} of {len(joined.counts)} without a token" if dead else ""
        even = f"busiest expert {joined.most:.3g} times the mean, cv {joined.cv:.3g}"
        text = f"{name}: over {len(late)} counts, {even}{gone}"
        found.append(Balance(late[-1], joined.cv, joined.most, dead, text))
    return found


def _shares(late: list[Load]) -> np.ndarray:
    """Mean share of each expert, every count weighing the same."""
    return np.mean([load.counts / load.counts.sum() for load in late], axis=0)
