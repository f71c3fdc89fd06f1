"""Where the processes of a job that stands still are, in a few words: the line that a hang is understood by."""

from __future__ import annotations

import json
import re
from pathlib import Path

from .stacks import main_stack

MOST, GROUPS = 64, 4  # files that are read; places that are told
_RANK = re.compile(r"rank_(\d+)_")


def standing(record: Path) -> str:
    """Who stands where by the stacks that a record names; the places of few first: they are whom the others wait for.

    Empty where the job does not stand still, or no stack could be read.
    """
    try:
        hang = json.loads(record.read_text(encoding="utf-8")).get("hang") or {}
        files = [] if hang.get("went_on") else [str(name) for name in hang.get("stacks") or []]
    except (OSError, ValueError, AttributeError):
        return ""
    places: dict[str, list[int]] = {}
    for name in files[:MOST]:
        rank = _RANK.search(name)
        try:
            frames = main_stack((record.parent / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if frames:
            places.setdefault(_place(frames), []).append(int(rank[1]) if rank else -1)
    few = sorted(places.items(), key=lambda p: (len(p[1]), p[1]))[:GROUPS]
    return "; ".join(f"{_who(ranks)} in {where}" for where, ranks in few)


def _place(frames: tuple[str, ...]) -> str:
    """The innermost frame, and the line of the user's own program that led there."""
    own = next((f for f in frames if not re.search(r"\((?:torch|multiprocessing|threading|<frozen)", f)), frames[-1])
    return frames[0] if own == frames[0] else f"{frames[0]}, called by {own}"


def _who(ranks: list[int]) -> str:
    known = sorted({r for r in ranks if r >= 0})
    if not known:
        return "a process" if len(ranks) == 1 else f"{len(ranks)} processes"
    shown = ", ".join(map(str, known[:6])) + (f" and {len(known) - 6} more" if len(known) > 6 else "")
    return f"rank {shown}" if len(known) == 1 else f"ranks {shown}"
