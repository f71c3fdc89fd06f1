"""Which files of a run go into a bundle, and how much of each, so that the whole keeps to its bound."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..reading.files import RunFile
from .focus import Focus
from .pieces import Span

PART = 1 << 20  # bytes kept from the start and from the end of a long file, where there is room
LEAST = 2 << 10  # of a file that is kept at all
FILES = 5000
ROLES = ("config", "environment", "capture", "log", "metrics", "code", "note")
FIRST = ("config", "environment", "capture")  # short and telling: up to half of the room before the others
SMALL = 64 << 10  # of a checkpoint's short texts
_PACKED = re.compile(r"\.(?:gz|zst|bz2|xz)$", re.IGNORECASE)
_UNPACKED = 30  # times its size that a packed file is taken to have
_OWN = re.compile(r"(?:^|/)(?:doctor-bundle-[\w-]+\.tar\.gz|\.doctor-bundle-\w+)$")


@dataclass(frozen=True, slots=True)
class Portion:
    """What is to be read of a file: `room` bytes of its ends, and stretches in focus."""

    file: RunFile
    room: int
    focus: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """Portions in order; `left` are files that stay away, with why; `more`: how many are not even listed."""

    portions: list[Portion] = field(default_factory=list)
    left: list[tuple[RunFile, str]] = field(default_factory=list)
    more: int = 0


def plan(files: Iterable[RunFile], focus: Focus, room: int) -> Plan:
    """Share the room: what the report cites, what is short and telling, then a fair part of everything else."""
    out = Plan()
    wanted, cited = [], []
    for file in files:
        if file.role in ROLES or _is_note(file):
            wanted.append(file)
        elif file.name in focus:
            cited.append(file)
        else:
            out.left.append((file, f"{file.role} is not collected"))
    wanted.sort(key=lambda f: (f.name not in focus, ROLES.index(f.role) if f.role in ROLES else len(ROLES)))
    out.more = max(0, len(wanted) - FILES) + max(0, len(out.left) - FILES)
    wanted, out.left = wanted[:FILES], out.left[:FILES]
    windows = _affordable(wanted, focus, room // 4)
    rest = room - sum(b - a for spans in windows.values() for a, b in spans)
    early = [f for f in wanted if f.role in FIRST]
    shares = _shares(early, rest // 2)
    shares |= _shares([f for f in wanted if f.role not in FIRST], rest - sum(shares.values()))
    for file in wanted:
        if file.name in shares or file.name in windows:
            out.portions.append(Portion(file, shares.get(file.name, 0), windows.get(file.name, [])))
        else:
            out.left.append((file, "the bundle is full"))
    # of files that are not collected (data, for one), no more than the lines that the report shows anyway
    out.portions += [Portion(f, 0, [_line_itself(s) for s in focus[f.name]]) for f in cited]
    return out


def is_own(name: str, head: bytes) -> bool:
    """Whether a file is a bundle that was made before, which must not go into the next."""
    return bool(_OWN.search(name)) or (head[257:262] == b"ustar" and b"traindoctor.bundle/" in head)


def _is_note(file: RunFile) -> bool:
    """The short texts of a checkpoint: trackers, indices, state as JSON."""
    return file.role == "checkpoint" and file.size <= SMALL and file.path.suffix.lower() in ("", ".txt", ".json")


def _line_itself(span: Span) -> Span:
    from .focus import CITED

    start, end = span
    return (start + CITED, end - CITED) if end - start > 2 * CITED else span


def _affordable(files: list[RunFile], focus: Focus, room: int) -> Focus:
    out: Focus = {}
    for file in files:
        size = file.size * (_UNPACKED if _PACKED.search(file.name) else 1)
        for start, end in focus.get(file.name, []):
            middle, end = (start + end) // 2, min(end, size)
            if end - start > room:  # the inner part of it
                start, end = max(start, middle - room // 2), min(end, middle + room // 2)
            if end - start < LEAST and size > LEAST:
                continue
            room -= end - start
            out.setdefault(file.name, []).append((start, end))
    return out


def _need(file: RunFile) -> int:
    return min(2 * PART, file.size * _UNPACKED if _PACKED.search(file.name) else file.size)


def _shares(files: list[RunFile], room: int) -> dict[str, int]:
    """Bytes for each file: short ones whole, what they leave over evenly among the long; some none at all."""
    if files and room // len(files) < LEAST:
        files = files[: max(0, room // LEAST)]
    out: dict[str, int] = {}
    for number, file in enumerate(sorted(files, key=_need)):
        out[file.name] = min(_need(file), room // (len(files) - number))
        room -= out[file.name]
    return out
