"""Shapes that differ on loading because tensors were cut into another number of parts when they were saved."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from .failures import failures
from .files import Line, RunFile
from .roster import roster
from .settings import read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

MISMATCH = re.compile(
    r"size mismatch for (?P<name>\S{1,200}): copying a param(?:eter)? with shape "
    r"torch\.Size\(\[(?P<saved>[\d, ]{1,60})\]\) from checkpoint, "
    r"the shape in current model is torch\.Size\(\[(?P<built>[\d, ]{1,60})\]\)"
)
PART = re.compile(
    r"(?:^|[/_.-])(?:mp_rank|tp_rank|model_parallel_rank|tp|mp)[_-]?(\d{1,4})(?=$|[/_.-])"
    r"|consolidated\.(\d{2})\.pth$"
)
FEWEST = 2  # tensors that must differ alike


@dataclass(frozen=True, slots=True)
class Split:
    """Parts on disk, parts that the model being loaded is cut into, and the lines and the file that show it."""

    saved: int
    built: int
    lines: list[tuple[RunFile, Line]]
    part: RunFile


def split_otherwise(ws: Workspace) -> Split | None:
    """Parts then and now, where all mismatched tensors differ by one factor that exactly the two numbers explain.

    Numbers alone do not tell a cut from a wider layer: what the run has now must be known, by its tensor-parallel
    size or by having fewer processes than there are parts.
    """
    found = [(u.file, line, m) for u in failures(ws).units for line, text in u.details if (m := MISMATCH.search(text))]
    ratios = {_ratio(m["saved"], m["built"]) for _, _, m in found}
    files = _parts(ws)
    if len({m["name"] for _, _, m in found}) < FEWEST or len(ratios) != 1 or not files:
        return None
    ratio = ratios.pop()
    if ratio is None or (built := len(files) / ratio).denominator != 1:
        return None
    saved, now = len(files), int(built)
    return Split(saved, now, [(f, line) for f, line, _ in found[:2]], files[-1]) if _is_so(ws, saved, now) else None


def _ratio(saved: str, built: str) -> Fraction | None:
    """Built over saved, where exactly one dimension differs."""
    pairs = list(zip(_sizes(saved), _sizes(built), strict=False))
    off = [Fraction(b, a) for a, b in pairs if a != b and a and b]
    return off[0] if len(_sizes(saved)) == len(_sizes(built)) and len(off) == 1 else None


def _sizes(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def _parts(ws: Workspace) -> list[RunFile]:
    """One file of each part of the save that has the most parts."""
    saves: dict[str, dict[int, RunFile]] = defaultdict(dict)
    for file in ws.by_role("checkpoint"):
        if (m := PART.search(file.name)) and not file.good:
            saves[file.name[: m.start()]].setdefault(int(m[1] or m[2]), file)
    most = max(saves.values(), key=len, default={})
    return [most[n] for n in sorted(most)] if sorted(most) == list(range(len(most))) else []


def _is_so(ws: Workspace, saved: int, built: int) -> bool:
    settings = read_settings(ws)
    parallel = settings.value("tensor_parallel")
    if isinstance(parallel, int) and parallel > 0:
        return parallel == built != saved
    known = [settings.value(name) for name in ("world_size", "processes_per_node")] + [roster(ws).world]
    nodes = settings.value("nodes")
    counts = [n for n in known if isinstance(n, int) and n > 0]
    alone = not isinstance(nodes, int) or nodes == 1
    return built < saved and alone and bool(counts) and built in counts
