"""Tables of cProfile: how much of the time goes into opening and reading many files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile

if TYPE_CHECKING:
    from ..workspace import Workspace

_BYTES = 16 << 20
_TOTAL = re.compile(r"^\s*\d+ function calls .{0,80}in (?P<seconds>\d+(?:\.\d+)?) (?:CPU )?seconds")
_ROW = re.compile(r"^\s*(?P<calls>\d+)(?:/\d+)?\s+[\d.]+\s+[\d.]+\s+(?P<cumulative>[\d.]+)\s+[\d.]+\s+(?P<name>\S.*)$")
_OPENS = re.compile(
    r"\{built-in method (?:_?io\.)?open\}|method posix\.open\}|_?npyio(?:_impl)?\.py:\d+\(load\)|Image\.py:\d+\(open\)"
    r"|serialization\.py:\d+\(load\)|\{(?:built-in method )?(?:cv2\.)?imread\}|files\.py:\d+\(__init__\)|imread\w*\)"
    r"|\((?:dcmread|read_csv|read_parquet|read_file|read_image|load_file|safe_open|read_text|read_bytes|loadtxt|wavfile_read)\)"
    r"|(?:soundfile|torchaudio|librosa|nibabel|rasterio)\S*\.py:\d+\((?:read|load|open)\)|json/__init__\.py:\d+\(load\)"
)
MANY = 2000  # calls from which files count as many


@dataclass(frozen=True, slots=True)
class FileLoads:
    """Calls of the function that loads files, and its share of the profiled time."""

    file: RunFile
    line: Line
    calls: int
    share: float
    name: str


def file_loads(ws: Workspace) -> list[FileLoads]:
    """The costliest function that opens or loads files, of each profile in which it is called very often."""
    found = []
    for file in ws.by_role("log", "other", "capture"):
        if not file.good and file.size <= _BYTES and (loads := _loads(ws, file)) is not None:
            found.append(loads)
    return found


def _loads(ws: Workspace, file: RunFile) -> FileLoads | None:
    total, best = 0.0, None
    if not any(b"ncalls" in block for block in ws.blocks(file)):
        return None
    for line in ws.lines(file):
        text = line.text[:400]
        if m := _TOTAL.match(text):
            total = float(m["seconds"])
        elif total > 0 and (m := _ROW.match(text)) and _OPENS.search(m["name"]) and m["cumulative"].count(".") == 1:
            share = min(1.0, float(m["cumulative"]) / total)
            if int(m["calls"]) >= MANY and (best is None or share > best.share):
                best = FileLoads(file, line, int(m["calls"]), share, m["name"][:80])
    return best
