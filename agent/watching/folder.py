"""The files of one run that are followed: found by a walk now and then, asked by `stat` at each look."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePath

from ..errors import ParseError
from ..reading.discover import walk
from ..reading.files import head
from ..reading.roles import role_of
from .tail import Identity, Reader, Tail, copied

_HEAD = 8192
_MOST_FILES = 4096  # that are followed
_REFUSED = 50_000  # files that are known to be of no interest
_REST = 20.0  # seconds of rest for a second of walking
_SKEW = 120.0  # seconds that the clock of a file server may be behind ours
_PLACES, _LINKS = 8, 2000  # file systems, and entries of the folder that are asked whether they are links
_WALK = 5.0  # seconds between two walks at least
_PACKED = (".gz", ".zst", ".bz2", ".xz", ".zip")

Make = Callable[[str, Path, str], Reader | None]  # name, path, role


@dataclass(slots=True)
class Seen:
    """A file that no tail follows, as the walk saw it: checkpoints are made of these."""

    name: str
    size: int
    written: float


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
        try:
            resolved = self.root.resolve()
            there = self.root.exists()
        except (OSError, RuntimeError):
            there, resolved = False, self.root
        seen: dict[Identity, tuple[str, Path, os.stat_result]] = {}
        self.walked = []
        if there and self.root.is_dir():
            for name, path, info in walk(self.root, [resolved], lambda _name, _why: None):
                seen.setdefault((info.st_dev, info.st_ino), (name, path, info))
        elif there:
            info = self.root.stat()
            seen[(info.st_dev, info.st_ino)] = (self.root.name, self.root, info)
        for identity in [i for i in self.tails if i not in seen]:
            del self.tails[identity]
        for identity, (name, path, info) in sorted(seen.items(), key=lambda s: s[1][2].st_mtime):  # what is older first
            tail = self.tails.get(identity)
            if tail is not None and path != tail.path and not tail.is_at(path):
                tail = self.tails.pop(identity) and None
            if tail is not None:
                tail.path = path  # under another name by now: it is read to its end
            elif not self._follow(identity, name, path, info):
                self.walked.append(Seen(name, info.st_size, info.st_mtime))
        self.there = there
        self._place(seen.values())
        took = time.monotonic() - began
        self._next = time.monotonic() + max(_WALK, _REST * took)
        self._first = self._first and not there

    def _place(self, seen: Iterable[tuple[str, Path, os.stat_result]]) -> None:
        """File systems of the folder, of what is mounted in it, and of folders that links in it point to."""
        for _, path, info in seen:
            if info.st_dev not in self.places and len(self.places) < _PLACES:
                self.places[info.st_dev] = path.parent
        with suppress(OSError), os.scandir(self.root) as entries:
            for entry in islice(entries, _LINKS):
                if entry.is_symlink() and entry.is_dir() and len(self.places) < _PLACES:
                    self.places.setdefault(entry.stat().st_dev, Path(entry.path))

    def _follow(self, identity: Identity, name: str, path: Path, info: os.stat_result) -> bool:
        known = self._refused.get(identity)
        if known is not None and (known >= _HEAD or known == info.st_size):
            return False
        role = role_of(name, b"")
        if not info.st_size or role in ("checkpoint", "code", "capture", "trace", "environment", "note", ""):
            return False
        try:
            start = head(path, _HEAD)
        except (ParseError, OSError):
            return False
        role = role_of(name, start)
        reader = None
        if role in ("log", "metrics") and not PurePath(name).name.lower().endswith(_PACKED):
            reader = self.make(name, path, role)
        if reader is None or len(self.tails) >= _MOST_FILES:
            if len(self._refused) < _REFUSED:
                self._refused[identity] = info.st_size
            return False
        tail = Tail(name, path, identity, reader)
        if self._first or info.st_mtime < self._began - _SKEW:
            tail.until = info.st_size
        elif (read := copied(list(self.tails.values()), name, start)) is not None:
            tail.offset, tail.line = min(read, info.st_size), None
        self.tails[identity] = tail
        return True
