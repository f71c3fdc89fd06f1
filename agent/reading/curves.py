"""All series and sweeps of a run: the right reader for each file, read once per workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ParseError
from .files import Line, RunFile, blocks, open_regular
from .inflate import packing_of, utf16
from .metric_formats.json_history import read_history
from .metric_formats.lines import LineReader, read_parts
from .metric_formats.tables import SweepRow, Table, read_table
from .mlflow_store import is_point, read_database, read_metric
from .pace import paces
from .series import Series, Track
from .tensorboard import read_events
from .wandb_offline import read_wandb

if TYPE_CHECKING:
    from ..workspace import Workspace

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
_RL = {"reward", "reward_std", "policy_loss", "response_length", "zero_std_fraction"}


@dataclass
class Curves:
    """Series of all files, tables that are not over time, and what could not be read."""

    series: list[Series] = field(default_factory=list)
    sweeps: list[tuple[RunFile, list[SweepRow]]] = field(default_factory=list)
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
        series = [s for t in tracks if (s := t.finish(file)) is not None]
        rl = any(s.metric in _RL for s in series)
        for s in series:
            s.rl = rl
        found.series += series
        if sweep:
            found.sweeps.append((file, sweep))
        if file.role == "log" and len(series) <= _FEW and _is_plain(file):
            found.series += paces(series)
    return found


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
    if file.role in ("log", "metrics", "data", "other", "capture"):
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
