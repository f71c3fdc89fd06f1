"""All series and sweeps of a run: the right reader for each file, read once per workspace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import ParseError
from ...core.types import Evidence, Value
from ..run.clocks import stamp_of
from ..run.files import Line, RunFile, blocks, open_regular, packing_of, utf16
from ..run.records import Row, json_rows
from .copies import mark_copies
from .formats.metric_lines import LineReader, read_parts
from .formats.metric_tables import SweepRow, Table, read_history, read_table
from .formats.metric_text import BARE
from .formats.printed_meaning import by_file_name, explain
from .series import Series, Track
from .stores import is_point, read_database, read_events, read_metric, read_wandb

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Seconds per step from the time stamps of metric lines, for logs that print none.


_PACED = {"step_time", "throughput", "tflops", "bar_step_time"}
_MOST_POINTS = 4_000  # lines looked at per file
_LOOK = 200  # bytes of a line that may hold its stamp


def paces(series: Iterable[Series]) -> list[Series]:
    """One step-time series for each plain log that stamps its steps and reports no pace of its own."""
    by_file: dict[tuple, list[Series]] = {}
    for s in series:
        by_file.setdefault((s.file.name, s.rank, s.variant), []).append(s)
    found = []
    for members in by_file.values():
        best = max(members, key=lambda s: s.count)
        usable = (
            best.stepped and best.file.role == "log" and 4 <= len(best) <= _MOST_POINTS and best.metric != "eval_loss"
        )
        if usable and not any(s.metric in _PACED for s in members) and (pace := _pace(best)) is not None:
            found.append(pace)
    return found


def _pace(s: Series) -> Series | None:
    seconds = _stamps(s.file, s.offsets)
    if seconds is None:
        return None
    took, steps = np.diff(seconds), np.diff(s.steps)
    good = (took >= 0) & (steps > 0) & np.isfinite(took)
    if good.sum() < 3 or float(np.median(took[good])) < 2.0:
        return None  # stamps in whole seconds cannot time steps this short
    at = np.flatnonzero(good) + 1
    return Series(
        "step_time", "time stamps", s.file, s.steps[at], took[good] / steps[good], s.lines[at], s.offsets[at],
        np.ones(len(at), dtype=bool), True, len(at), rank=s.rank, attempt=s.attempt, variant=s.variant,
    )  # fmt: skip


def _stamps(file: RunFile, offsets: np.ndarray) -> np.ndarray | None:
    """Seconds of each line by its stamp, NaN without one; None when the first lines have none."""
    found = np.full(len(offsets), np.nan)
    kind = None
    with open_regular(file.path) as stream:
        for i, offset in enumerate(offsets.tolist()):
            stream.seek(offset)
            line = Line(0, offset, (stream.read(_LOOK) or b"").partition(b"\n")[0])
            stamp = stamp_of(line.text)
            if stamp is None or (kind is not None and stamp.kind != kind):
                if i == 0:
                    return None
                continue
            kind = stamp.kind
            found[i] = stamp.value
    if kind == "clock":
        found[1:] += 86_400 * np.cumsum(np.diff(found) < -43_200)  # past midnight
    return found


# ----------

_NOT_METRICS = {"code", "checkpoint", "trace"}
_SETTINGS_SUFFIXES = {
    ".yaml",
    ".yml",
    ".toml",
    ".ini",
    ".cfg",
    ".sh",
    ".bash",
    ".py",
    ".md",
    ".lock",
    ".sbatch",
    ".slurm",
}
_BY_PARAMETER = "gradients.jsonl"  # a row for each parameter, which no curve can be made of
_BIG = 128 << 20  # bytes from which a file is read in parts
_FEW = 64  # series of a file beyond which (many ranks in one) no pace is taken from its stamps
_LOGS, _HEAD = 64, 2000  # logs, and lines of each, that are looked at for what it began with
_RESULT = re.compile(r"(?:^|/)(?:train_(?:loss|runtime|(?:samples|steps|tokens)_per_second)|total_flos)$")
_SCORE = re.compile(r"(?i)acc|f1|score|auc|bleu|rouge|corr|iou|dice|top_?[15k]")
_RL = {"reward", "reward_std", "policy_loss", "response_length", "zero_std_fraction"}


@dataclass
class Curves:
    """Series of all files, tables that are not over time, means over whole runs, and what could not be read."""

    series: list[Series] = field(default_factory=list)
    sweeps: list[tuple[RunFile, list[SweepRow]]] = field(default_factory=list)
    results: list[Series] = field(default_factory=list)
    failed: list[tuple[RunFile, str]] = field(default_factory=list)

    def of(self, *metrics: str, good: bool | None = None) -> list[Series]:
        """Series of these canonical metrics, longest first within a file."""
        found = [s for s in self.series if s.metric in metrics and (good is None or s.file.good == good)]
        return sorted(found, key=lambda s: (s.file.name, s.variant or "", -s.count))


def curves(ws: Workspace) -> Curves:
    """The curves of a workspace, read on first use."""
    return ws.memo("curves", lambda: _read(ws))


def _read(ws: Workspace) -> Curves:
    found = Curves()
    for file in ws.files:
        try:
            tracks, sweep = _read_file(ws, file)
        except ParseError as e:
            found.failed.append((file, str(e)))
            continue
        series = _without_other_bars([s for t in tracks if (s := t.finish(file)) is not None])
        rl = any(s.metric in _RL for s in series)
        for s in series:
            s.rl = rl
        if file.role == "log" and _is_plain(file):
            explain(ws.ran, file, series)
        by_file_name(file, series)
        series = _without_doubtful(series)
        found.series += series
        if sweep:
            found.sweeps.append((file, sweep))
        if file.role == "log" and len(series) <= _FEW and _is_plain(file):
            found.series += paces(series)
    series = _without_results(found.series)
    kept = {id(s) for s in series}
    found.series, found.results = series, [s for s in found.series if id(s) not in kept]
    mark_copies(found.series)
    return found


def _without_results(series: list[Series]) -> list[Series]:
    """Curves without the summary that transformers writes at the end: means over the whole run are no points."""
    ended = {home_of(s.file.name) for s in series if s.metric == "whole_run"}
    return [s for s in series if not (home_of(s.file.name) in ended and _RESULT.search(s.raw))]


def _without_doubtful(series: list[Series]) -> list[Series]:
    """Without curves named `val` alone, unless of the training loss's size, or above one and falling as losses do."""
    bare = [s for s in series if s.raw.lower() in BARE]
    losses = [
        s.values[s.finite][0] for s in series if s.metric == "loss" and s.raw.lower() not in BARE and s.finite.any()
    ]
    return [s for s in series if not any(s is b for b in bare) or _like_loss(s, losses)]


def _like_loss(s: Series, losses: list[float]) -> bool:
    values = s.values[s.finite]
    if not len(values) or _SCORE.search(s.expression):
        return False
    alike = any(0.2 * loss < values[0] < 5 * loss for loss in losses)
    return alike if losses else bool(len(values) > 1 and values.max() > 1 and values[-1] < values[0] < 20)


def _without_other_bars(series: list[Series]) -> list[Series]:
    """Of bars that count up to several numbers that of the training: most losses stand beside it, or it is the fullest.

    One that begins before that has moved is its part, of an epoch; others are scans before it, and evaluations.
    """
    bars = [s for s in series if s.metric == "bar_step_time"]
    if len(bars) < 2:
        return series
    points = np.concatenate([s.offsets for s in series if s.metric == "loss"] or [np.array([], dtype=np.int64)])

    def beside(s: Series) -> tuple[int, int]:
        return int(((points >= s.offsets[0]) & (points <= s.offsets[-1])).sum()), s.count

    main = max(bars, key=beside)
    moved = next((int(o) for o, step in zip(main.offsets, main.steps, strict=True) if step > 0), 0)
    own = {id(s) for s in bars if s is main or main.offsets[0] <= s.offsets[0] <= moved or s.rank != main.rank}
    return [s for s in series if s.metric != "bar_step_time" or id(s) in own]


def home_of(name: str) -> str:
    """Where the curves of one run stand together: the file, or a store's folder with a file for each metric."""
    return name.rpartition("/metrics/")[0] or name


def _read_file(ws: Workspace, file: RunFile) -> tuple[list[Track], list[SweepRow]]:
    name = file.path.name.lower().removesuffix(".gz").removesuffix(".zst")
    suffix = "." + name.rpartition(".")[2] if "." in name else ""
    if reader := _binary_reader(name):
        return reader(file.path), []
    if file.role in _NOT_METRICS or suffix in _SETTINGS_SUFFIXES or name == _BY_PARAMETER:
        return [], []
    if suffix in (".csv", ".tsv"):
        table = read_table(file.path)
        return table.tracks, table.sweep
    if suffix == ".json":
        return _json(file), []
    if "/metrics/" in f"/{file.name}" and is_point(ws.head(file).split(b"\n")[0]):
        return read_metric(file.path, file.name), []
    if file.role in ("log", "metrics", "data", "other", "capture") and not _is_binary_text(ws, file):
        parts = file.size > _BIG and _is_plain(file)
        tracks = read_parts(file.path, file.size) if parts else LineReader().read(ws.blocks(file))
        return list(tracks.values()), []
    return [], []


def is_binary(file: RunFile) -> bool:
    """Whether the file's curves stand in records, so that a point has no line to quote."""
    return _binary_reader(file.path.name.lower()) is not None


def _binary_reader(name: str) -> Callable[[Path], list[Track]] | None:
    if "tfevents" in name:
        return read_events
    return {".wandb": read_wandb, ".db": read_database, ".sqlite": read_database}.get(Path(name).suffix)


def _is_binary_text(ws: Workspace, file: RunFile) -> bool:
    """Whether a file holds pictures, tensors and the like, in which any word may turn up."""
    return b"\0\0" in ws.head(file)[:4096]


def _is_plain(file: RunFile) -> bool:
    """Whether bytes in the file are the text itself: not packed, not UTF-16."""
    try:
        with open_regular(file.path) as stream:
            head = stream.read(2048) or b""
    except ParseError:  # it went away; who reads its lines tells so
        return False
    return not packing_of(head) and not utf16(head)


def _json(file: RunFile) -> list[Track]:
    """Only what looks like metrics: a history with a known metric in it, or one that counts steps in a metrics file."""
    tracks = read_history(file.path)
    return tracks if any(t.known for t in tracks) or (file.role == "metrics" and any(t.stepped for t in tracks)) else []


def line_at(series: Series, index: int) -> Line:
    """The line of a point, as it stands in its file."""
    return read_line_at(series.file, int(series.lines[index]), int(series.offsets[index]))


def heads(ws: Workspace) -> Iterator[tuple[RunFile, Line]]:
    """The first lines of each log, of the first rank alone where there are many: settings, data, what was loaded."""
    for file in [f for f in ws.by_role("log") if not (f.good or f.rank)][:_LOGS]:
        for line in islice(ws.lines(file), _HEAD):
            yield file, line


def read_line_at(file: RunFile, number: int, offset: int, limit: int = 1 << 14) -> Line:
    """A line by its number and byte offset in the decompressed file; empty when the file has shrunk."""
    at, data = 0, b""
    try:
        plain = _is_plain(file)
        if plain:
            with open_regular(file.path) as stream:
                stream.seek(offset)
                data = stream.read(limit) or b""
        for block in () if plain else blocks(file.path):
            if at + len(block) > offset:
                data += block[max(offset - at, 0) :]
                if len(data) >= limit:
                    break
            at += len(block)
    except (ParseError, OSError):
        data = b""
    head, _, _ = data[:limit].partition(b"\n")
    return Line(number, offset, head, len(head) == limit)


__all__ = ["Curves", "Table", "curves", "line_at", "read_line_at"]


# ----------
# Rates whose unit alone says what they count: `4859 tokens/s`, `2240 customers/s 560 steps/s`, `1.4 ms/step`.

_BYTES = 32 << 20  # of one log
_FEWEST = 3  # lines
_HINT = re.compile(rb"\d ?[A-Za-z]{2,20}/s")
_RATE = re.compile(r"(?P<n>\d[\d,]*(?:\.\d+)?)\s?(?P<what>[A-Za-z]{2,20})/s(?:ec(?:ond)?)?\b")
_COUNT = re.compile(r"(?P<n>\d[\d,]*)\s(?P<what>[A-Za-z]{2,20})\b(?!/)")
_SECONDS = re.compile(r"(?<![\w.])(?P<n>\d+(?:\.\d+)?)\s?s(?:ec(?:onds)?)?\b(?!/)")
_STEPS = frozenset(
    {"it", "its", "iter", "iters", "iterations", "step", "steps", "batch", "batches", "update", "updates"}
)
_AMOUNTS = re.compile(r"(?i)^(?:[kmgt]?i?b(?:ytes?|its?)?|[kmgtp]?flops?|bytes|ops|io|req\w*|calls?|files?|pages?)$")
_ELSEWHERE = re.compile(r"(?i)\b(?:eval\w*|valid\w*|test(?:ing)?|download\w*|tokeni[sz]\w*|prompt|map|filter)\b")


@dataclass(frozen=True, slots=True)
class Pace:
    """What one log says of its pace: samples (or tokens) a second, and steps a second where it prints both."""

    file: RunFile
    what: str
    line: Line
    rate: float
    steps: float | None
    series: Series

    @property
    def each(self) -> float | None:
        """Samples of one step."""
        return self.rate / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class Slowing:
    """A rate of generation that falls as what is generated grows longer: `ratio` of the last to the first."""

    file: RunFile
    line: Line
    ratio: float


def paces_told(ws: Workspace) -> list[Pace]:
    """The pace of each log that prints rates with their units."""
    return ws.memo("rates", lambda: [p for f in ws.by_role("log", "other") if (p := _pace_of_rate(ws, f)) is not None])


def _lines(ws: Workspace, file: RunFile) -> list[Line]:
    if file.size > _BYTES:
        return []
    return [line for line in ws.lines(file) if len(line.data) < 2000 and _HINT.search(line.data)]


def _pace_of_rate(ws: Workspace, file: RunFile) -> Pace | None:
    rows: list[tuple[Line, dict[str, float]]] = []
    for line in _lines(ws, file):
        if not _ELSEWHERE.search(line.text):
            rows.append((line, {m["what"].lower(): _number(m["n"]) for m in _RATE.finditer(line.text)}))
    counts = Counter(what for _, rates in rows for what in rates if what not in _STEPS and not _AMOUNTS.match(what))
    if not counts or counts.most_common(1)[0][1] < _FEWEST:
        return None
    what = counts.most_common(1)[0][0]
    same = [(line, rates) for line, rates in rows if rates.get(what)]
    if len(same) < _FEWEST:
        return None
    values = np.array([rates[what] for _, rates in same])
    steps = [next((n for k, n in rates.items() if k in _STEPS and n), None) for _, rates in same]
    known = [n for n in steps if n]
    series = Series(
        "throughput", f"{what}/s", file, np.arange(1.0, len(same) + 1), values,
        np.array([line.number for line, _ in same]), np.array([line.offset for line, _ in same]),
        np.ones(len(same), dtype=bool), False, len(same), rank=file.rank, variant=file.variant,
    )  # fmt: skip
    step_rate = float(np.median(known)) if len(known) == len(same) else None
    return Pace(file, what, same[-1][0], float(np.median(values)), step_rate, series)


def slowing(ws: Workspace) -> list[Slowing]:
    """Logs in which `N notes | t s | R notes/s` tell that longer outputs come at ever lower rates."""
    found = []
    for file in ws.by_role("log", "other"):
        if file.good:
            continue
        points = [p for line in _lines(ws, file) if (p := _generated(line)) is not None]
        points.sort(key=lambda p: p[0])
        if len(points) >= _FEWEST and points[-1][0] >= 4 * points[0][0]:
            ratio = points[-1][1] / points[0][1]
            if ratio < 0.6 and points[-1][1] == min(rate for _, rate, _ in points):
                found.append(Slowing(file, points[-1][2], round(ratio, 3)))
    return found


def _generated(line: Line) -> tuple[float, float, Line] | None:
    """Length and rate of one output: the line also names the seconds that this length took."""
    rates = [(m["what"].lower(), _number(m["n"])) for m in _RATE.finditer(line.text)]
    for what, rate in rates:
        if what in _STEPS or _AMOUNTS.match(what) or rate <= 0:
            continue
        lengths = [_number(m["n"]) for m in _COUNT.finditer(line.text) if m["what"].lower() == what]
        took = [float(m["n"]) for m in _SECONDS.finditer(line.text)]
        for length in lengths:
            if length > 0 and any(t > 0 and abs(length / t - rate) <= 0.05 * rate for t in took):
                return length, rate, line
    return None


def _number(text: str) -> float:
    return float(text.replace(",", ""))


# ----------
# Evidence at one point of a curve: the line it was read from, or the record of a binary file.


def point_evidence(ws: Workspace, s: Series, index: int, key: str, value: Value) -> Evidence:
    """Evidence at one point of a series, with its step where the log names steps."""
    step = int(s.steps[index]) if s.stepped and not s.by_epoch else None
    if is_binary(s.file):
        return Evidence(
            key=key, value=value, kind="binary", file=s.file.name, member=s.raw, offset=int(s.offsets[index]),
            text=f"{s.raw} step {s.steps[index]:g}: {s.values[index]:.7g}", rank=s.rank, attempt=s.attempt,
            variant=s.variant, step=step, run=s.file.run,
        )  # fmt: skip
    return ws.cite(s.file, line_at(s, index), key, value, rank=s.rank, attempt=s.attempt, variant=s.variant, step=step)


# ----------
# Curves by the names that a run gave them, also those that no vocabulary knows.

_MOST = 50_000  # rows of one file


def named_series(ws: Workspace, name: re.Pattern[str], word: bytes) -> list[Series]:
    """Every curve of the run itself whose name `name` finds; `word` stands in each such name."""
    found = [s for s in curves(ws).series if not s.file.good and name.search(s.raw)]
    known = {(s.file.name, s.raw) for s in found}
    rows: dict[tuple[str, str], list[tuple[Row, float]]] = {}
    for row in json_rows(ws, word, ("metrics", "log")):
        for key, value in row.numbers.items():
            if name.search(key) and not known & {(row.file.name, key), (row.file.name, key.rpartition("/")[2])}:
                held = rows.setdefault((row.file.name, key), [])
                if len(held) < _MOST:
                    held.append((row, value))
    return found + [_series(key, held) for (_, key), held in rows.items()]


def _series(name: str, held: list[tuple[Row, float]]) -> Series:
    stepped = all(row.step is not None for row, _ in held)
    steps = [row.step or 0 for row, _ in held] if stepped else list(range(1, len(held) + 1))
    file = held[0][0].file
    return Series(
        name, name, file, np.array(steps, dtype=float), np.array([value for _, value in held]),
        np.array([row.line.number for row, _ in held]), np.array([row.line.offset for row, _ in held]),
        np.ones(len(held), dtype=bool), stepped, len(held), rank=file.rank, variant=file.variant, known=False,
    )  # fmt: skip


def paired(a: Series, b: Series) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of two curves of one file at their common steps, and where these stand in the first."""
    steps, i, j = np.intersect1d(a.steps, b.steps, return_indices=True)
    del steps
    good = np.isfinite(a.values[i]) & np.isfinite(b.values[j])
    return a.values[i][good], b.values[j][good], i[good]
