"""Numbers that a run's configs, launch lines and log heads set, as `key: number` with their lines.

A cheap reading of its own, for arithmetic on curves (a plateau at ln(batch size), a ratio equal to a parallel
size). The settings proper, with types and owners, are read elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile, lines
from .metric_names import normal, setting

if TYPE_CHECKING:
    from ..workspace import Workspace

_PAIR = re.compile(
    rb"(?<![\w.-])(?:--?)?([A-Za-z][A-Za-z0-9_.\- ]{1,60}?)['\"]?\s{0,3}(?:\.{2,80}|[:= ])\s{0,3}['\"]?"
    rb"(\d{1,9}(?:\.\d{1,12})?(?:e-?\d{1,3})?)(?![\w.%])"
)
_SUFFIXES = {
    ".yaml",
    ".yml",
    ".json",
    ".toml",
    ".sh",
    ".py",
    ".txt",
    ".log",
    ".out",
    ".cfg",
    ".ini",
    ".sbatch",
    ".slurm",
}
_HEAD_LINES = 400  # lines of a log that may print settings
_CONFIG_LIMIT = 1 << 20


@dataclass(frozen=True)
class PlainSetting:
    """A number by its canonical name where it has one, with the line that sets it."""

    name: str
    raw: str
    value: float
    file: RunFile
    line: Line


def plain_settings(ws: Workspace) -> list[PlainSetting]:
    """Numeric settings in all configs and log heads, in file order."""
    return ws.memo("plain_settings", lambda: _read(ws))


def _read(ws: Workspace) -> list[PlainSetting]:
    found: list[PlainSetting] = []
    for file in ws.files:
        if file.path.suffix.lower() not in _SUFFIXES or (
            file.role not in ("log", "config", "code", "other", "capture")
        ):
            continue
        if file.role != "log" and file.size > _CONFIG_LIMIT:
            continue
        for line in lines(file.path):
            if line.number > _HEAD_LINES and file.role == "log":
                break
            if len(line.data) > 8192 or not any(48 <= c < 58 for c in line.data):
                continue
            found += _of_line(file, line)
            if len(found) > 20_000:
                return found
    return found


def _of_line(file: RunFile, line: Line) -> list[PlainSetting]:
    found = []
    for m in _PAIR.finditer(line.data):
        raw = m[1].decode(errors="replace").strip(" '\"-")
        name = _canonical(raw)
        if name:
            found.append(PlainSetting(name, raw, float(m[2]), file, line))
    return found


def _canonical(raw: str) -> str | None:
    words = normal(raw).split("_")
    for cut in range(len(words)):
        found = setting("_".join(words[cut:]))
        if found and (cut == 0 or len(words) - cut > 1):
            return found
    return None
