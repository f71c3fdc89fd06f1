"""The logs of further ranks beside those of an incident: what a healthy peer printed, under other numbers.

A peer is a rank whose log holds no deciding line: it is copied whole, also with what it printed when the job went down,
as all peers of a real job do. Where every log decides, or all ranks print into one, a copy ends before the trouble.
Sizes that the run's files state (`world_size`) are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..case import Case

_FILE = re.compile(r"^(.*?rank[_-]?)(\d+)(\D*)$", re.IGNORECASE)
_SAYS = re.compile(r"\[rank\d+\]|\brank[ =:_]?\d+\b|torchrun|--nproc|world_size|WORLD_SIZE|DDP|NCCL", re.IGNORECASE)


def known(files: Path, logs: Sequence[Path]) -> bool:
    """Whether the run is one of several ranks, by the names of its logs or their words."""
    texts = (p.read_text(encoding="utf-8", errors="replace") for p in logs)
    return any(_FILE.match(p.name) for p in logs) or any(_SAYS.search(text) for text in texts)


def add(case: Case, logs: Sequence[Path], total: int, trouble: re.Pattern[str]) -> None:
    """Write logs until there are `total` ranks."""
    named = {int(m[2]): p for p in logs if (m := _FILE.match(p.name))}
    decides = {m.file for m in case.marks}
    peers = [r for r, p in named.items() if p.relative_to(case.files).as_posix() not in decides]
    if named:
        rank = peers[-1] if peers else max(named, key=lambda r: named[r].stat().st_size)
        path = named[rank]
    else:
        rank, path = 0, max(logs, key=lambda p: p.stat().st_size)
    text = path.read_text(encoding="utf-8", errors="replace")
    text = text if peers else _before(text, trouble)
    number = re.compile(rf"(?<![A-Za-z])(\[?rank[ =:_]?|Rank )0*{rank}\b", re.IGNORECASE)
    for other in range(total):
        if other in named or (not named and other == rank):
            continue
        m = _FILE.match(path.name)
        name = f"{m[1]}{other:0{len(m[2])}d}{m[3]}" if m else f"rank{other}.log"
        shifted = number.sub(lambda found, n=other: f"{found[1]}{n}", text)
        (path.parent / name).write_text(shifted, encoding="utf-8")


def _before(text: str, trouble: re.Pattern[str]) -> str:
    """The lines ahead of the first that speaks of trouble, at least one."""
    lines = text.splitlines(keepends=True)
    end = next((i for i, line in enumerate(lines) if trouble.search(line)), len(lines))
    return "".join(lines[: max(end, 1)]) if end else "process group of this rank is ready\n"
