"""The files of one run that are followed: found by a walk now and then, asked by `stat` at each look."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise
from pathlib import Path, PurePath
from statistics import median

from ...core.errors import ParseError
from ...reading.run.discover import walk
from ...reading.run.files import head
from ...reading.run.roles import role_of
from ..growing import Identity, Reader, Tail, span
from .alarm import LIMITS, Found, Told
from .watched_curves import amount

HEAD = 8192
_MOST_FILES = 4096  # that are followed
_REFUSED = 50_000  # files that are known to be of no interest
_REST = 20.0  # seconds of rest for a second of walking
_SKEW = 120.0  # seconds that the clock of a file server may be behind ours
_PLACES, _LINKS = 8, 2000  # file systems, and entries of the folder that are asked whether they are links
_WALK = 5.0  # seconds between two walks at least
_NO_LINES = ("checkpoint", "code", "capture", "trace", "environment", "note", "")
_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")

Make = Callable[[str, Path, str], Reader | None]  # name, path, role


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as a walk saw it. `written` is in seconds since 1970."""

    name: str
    size: int
    written: float
    path: Path = Path()
    identity: Identity = (0, 0)


def seen_in(roots: list[Path]) -> dict[str, Seen] | None:
    """All files of the given folders and files by name, nothing opened; None where none of them is there."""
    found: dict[str, Seen] = {}
    there = False
    for number, root in enumerate(roots, 1):
        prefix = f"r{number}/" if len(roots) > 1 else ""
        try:
            info, resolved = root.stat(), root.resolve()
        except (OSError, ValueError, RuntimeError):
            continue
        there = True
        own = [(root.name, root, info)] if stat.S_ISREG(info.st_mode) else []
        inside = walk(root, [resolved], lambda _name, _why: None) if stat.S_ISDIR(info.st_mode) else own
        for name, path, about in inside:
            identity = (about.st_dev, about.st_ino)
            found[prefix + name] = Seen(prefix + name, about.st_size, about.st_mtime, path, identity)
    return found if there else None


@dataclass(slots=True)
class Folder:
    """A folder, or one file.

    Attributes:
        make: makes the reader of a file, or None where none reads it.
        walked: what the last walk saw that is not followed; emptied by whoever takes it.
        places: a folder on each file system that holds a part of it, by device.
    """

    root: Path
    make: Make
    there: bool = False
    tails: dict[Identity, Tail] = field(default_factory=dict)
    walked: list[Seen] | None = None
    places: dict[int, Path] = field(default_factory=dict)
    _refused: dict[Identity, int] = field(default_factory=dict)
    _next: float = 0.0
    _first: bool = True
    _began: float = field(default_factory=time.time)

    def search(self) -> None:
        """Walk at the next look, however short ago the last walk was."""
        self._next = 0.0

    def changed(self) -> list[Tail]:
        """The files that have something new, after a walk where one is due."""
        if time.monotonic() >= self._next:
            self._walk()
        found, lost = [], []
        for tail in self.tails.values():
            try:
                info = tail.path.stat()
            except OSError:
                lost.append(tail)
                continue
            if (info.st_dev, info.st_ino) != tail.identity:
                lost.append(tail)
            elif info.st_size != tail.size or info.st_mtime != tail.written or tail.offset < info.st_size:
                found.append(tail)
        if lost:
            self._walk()
            there = [t for t in lost if t.identity in self.tails]
            found += there + [t for t in self.tails.values() if t.offset == 0 and t not in found and t not in there]
        return found

    def _walk(self) -> None:
        began = time.monotonic()
        found = seen_in([self.root])
        there, seen = found is not None, dict[Identity, Seen]()
        for one in (found or {}).values():
            seen.setdefault(one.identity, one)
        self.walked = []
        for identity in [i for i in self.tails if i not in seen]:
            del self.tails[identity]
        for one in sorted(seen.values(), key=lambda s: s.written):  # what is older first
            tail = self.tails.get(one.identity)
            if tail is not None and one.path != tail.path and not tail.is_at(one.path):
                tail = self.tails.pop(one.identity) and None
            if tail is not None:
                tail.path = one.path  # under another name by now: it is read to its end
            elif not self._follow(one):
                self.walked.append(one)
        self.there = there
        self._place(seen.values())
        took = time.monotonic() - began
        self._next = time.monotonic() + max(_WALK, _REST * took)
        self._first = self._first and not there

    def _place(self, seen: Iterable[Seen]) -> None:
        """File systems of the folder, of what is mounted in it, and of folders that links in it point to."""
        for one in seen:
            if one.identity[0] not in self.places and len(self.places) < _PLACES:
                self.places[one.identity[0]] = one.path.parent
        with suppress(OSError), os.scandir(self.root) as entries:
            for entry in islice(entries, _LINKS):
                if entry.is_symlink() and entry.is_dir() and len(self.places) < _PLACES:
                    self.places.setdefault(entry.stat().st_dev, Path(entry.path))

    def _follow(self, one: Seen) -> bool:
        known = self._refused.get(one.identity)
        if known is not None and (known >= HEAD or known == one.size):
            return False
        role, start = kind_of(one)
        reader = None
        if role in ("log", "metrics") and not PurePath(one.name).name.lower().endswith(_PACKED):
            reader = self.make(one.name, one.path, role)
        if reader is None or len(self.tails) >= _MOST_FILES:
            if start and len(self._refused) < _REFUSED:
                self._refused[one.identity] = one.size
            return False
        tail = Tail(one.name, one.path, one.identity, reader)
        if self._first or one.written < self._began - _SKEW:
            tail.until = one.size
        elif (read := _copied(list(self.tails.values()), one.name, start)) is not None:
            tail.offset, tail.line = min(read, one.size), None
        self.tails[one.identity] = tail
        return True


def kind_of(one: Seen) -> tuple[str, bytes]:
    """The role of a file by its name and its first bytes, and these; no role where they need not or cannot be read."""
    if not one.size or role_of(one.name, b"") in _NO_LINES:
        return "", b""
    try:
        start = head(one.path, HEAD)
    except (ParseError, OSError):
        return "", b""
    return role_of(one.name, start), start


def _copied(tails: list[Tail], name: str, start: bytes) -> int | None:
    """How much of a new file was read under another name: `x.log.1`, copied from `x.log` before that was cut."""
    for tail in tails:
        if not name.startswith((f"{tail.name}.", f"{tail.name}-")):
            continue
        for known, read in ((tail.start, tail.offset), tail.was):
            if len(known) >= 16 and start.startswith(known):
                return read
    return None


# ----------
# Checkpoints as a walk sees them: smaller than those before, with shards missing, or none for long.

_NUMBERED = re.compile(
    r"(?i)^(?P<family>(?:.*[-_.=])?(?:checkpoint|ckpt|global_?step|step|steps|iter|epoch|model)[-_=]?)(?P<number>\d{1,12})"
    r"(?P<rest>\D.*)?$"
)
_WEIGHTS = re.compile(r"(?i)\.(pt|pth|bin|safetensors|ckpt|distcp|npz|pkl|msgpack|h5)$")
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<at>\d{5})-of-(?P<of>\d{5})(?P<suffix>\.\w+)$")
_LEAST = 3  # that came at regular times before one is missed


@dataclass(slots=True)
class _Checkpoint:
    number: int
    name: str
    size: int
    files: int
    written: float
    shards: dict[tuple[str, int], set[int]]


class Checkpoints:
    """What is known of the checkpoints of a run. Nothing of them is opened."""

    def __init__(self) -> None:
        self._judged: set[str] = set()
        self._sizes: dict[str, list[int]] = defaultdict(list)  # of whole ones, by family
        self._came: dict[str, list[tuple[float, int]]] = {}  # when written and number, by family
        self._seen: dict[str, tuple[int, int, float]] = {}
        self._told = Told()

    def look(self, walked: list[Seen], now: float, step: float | None, going: bool) -> Iterator[Found]:
        """What this walk shows. `now`: seconds since 1970; `going`: the run makes steps."""
        found = _collected(walked)
        for family, members in found.items():
            members.sort(key=lambda c: c.number)
            self._came[family] = [(c.written, c.number) for c in members][-8:]
            for checkpoint in members:
                yield from self._judge(family, checkpoint, checkpoint is members[-1], now)
        if going:
            yield from self._overdue(now, step)

    def _judge(self, family: str, one: _Checkpoint, newest: bool, now: float) -> Iterator[Found]:
        key = f"{one.name}@{one.written:.0f}"
        if key in self._judged or now - one.written < LIMITS.settled:
            return
        if len(self._judged) > 4096:
            self._judged.clear()
        self._judged.add(key)
        sizes = self._sizes[family]
        usual = median(sizes) if sizes else 0
        gone = [f"{k[0]} {len(at)} of {k[1]}" for k, at in one.shards.items() if len(at) < k[1]]
        if newest and gone:
            yield Found("checkpoint_small", f"{one.name} has shards missing: {gone[0]}", float(one.size), file=one.name)
        elif newest and len(sizes) >= 2 and one.size < LIMITS.shrunk * usual:
            text = f"{one.name} has {amount(one.size)}"
            yield Found("checkpoint_small", text, float(one.size), f"{amount(usual)} before", file=one.name)
        elif one.size:
            sizes.append(one.size)
            del sizes[:-8]

    def _overdue(self, now: float, step: float | None) -> Iterator[Found]:
        for family, came in self._came.items():
            if len(came) < _LEAST:
                continue
            times, numbers = [t for t, _ in came], [n for _, n in came]
            gaps = [b - a for a, b in pairwise(times) if b > a]
            strides = [b - a for a, b in pairwise(numbers) if b > a]
            if len(gaps) < _LEAST - 1 or not strides:
                continue
            usual, since = median(gaps), now - max(times)
            late = since > max(LIMITS.overdue * usual, LIMITS.settled) and usual > 1
            by_step = step is not None and numbers[-1] < step and "epoch" not in family
            if by_step and step is not None:  # the steps say it better than the clock
                late = step - numbers[-1] > LIMITS.overdue * median(strides)
            if not late:
                self._told.over(family)
            else:
                text = f"no checkpoint after {family.rpartition('/')[2]}{numbers[-1]}, written {span(since)} ago"
                yield from self._told.tell(Found("checkpoint_overdue", text, since, f"one each {span(usual)}"), family)


def _collected(walked: list[Seen]) -> dict[str, list[_Checkpoint]]:
    """Checkpoints by family: a folder or a file whose name ends in a number, and holds weights."""
    found: dict[str, dict[str, _Checkpoint]] = defaultdict(dict)
    for seen in walked:
        path = PurePath(seen.name)
        if not _WEIGHTS.search(path.name):
            continue
        parts = path.parts
        for depth, part in enumerate(parts):
            stem = PurePath(part).stem if depth == len(parts) - 1 else part
            if not (m := _NUMBERED.match(stem)) or (depth == len(parts) - 1 and _SHARD.match(part) is not None):
                continue
            name = "/".join(parts[: depth + 1])
            family = "/".join((*parts[:depth], m["family"]))
            held = found[family].setdefault(name, _Checkpoint(int(m["number"]), name, 0, 0, 0.0, {}))
            held.size += seen.size
            held.files += 1
            held.written = max(held.written, seen.written)
            if (shard := _SHARD.match(path.name)) is not None:
                key = ("/".join((*parts[depth + 1 : -1], shard["stem"] + shard["suffix"])), int(shard["of"]))
                held.shards.setdefault(key, set()).add(int(shard["at"]))
            break
    return {family: list(members.values()) for family, members in found.items()}
