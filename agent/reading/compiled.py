"""Hyperscan databases, compiled once: serialized into the cache under a hash of their patterns."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from ..paths import cache_folder

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan: Any = None

_FORMAT = b"3"


class Databases:
    """Two databases over the same patterns: `once` reports a pattern once a block, `all` every match.

    Attributes:
        refused: indices of patterns that hyperscan does not take.
    """

    def __init__(self, regexes: list[bytes]) -> None:
        self._regexes = regexes
        digest = hashlib.sha256(_FORMAT + repr((hyperscan.__version__, platform.machine())).encode())
        for regex in regexes:
            digest.update(len(regex).to_bytes(4, "big") + regex)
        self._key = digest.hexdigest()[:24]

    @cached_property
    def refused(self) -> frozenset[int]:
        """Asked once and kept beside the databases."""
        path = cache_folder() / f"patterns-{self._key}.refused"
        kept = _read(path)
        if kept is not None:
            return frozenset(int(n) for n in kept.split())
        found = frozenset(i for i, regex in enumerate(self._regexes) if not _takes([regex]))
        _write(path, b" ".join(str(n).encode() for n in sorted(found)))
        return found

    @cached_property
    def once(self) -> Any:
        """For the pass: which patterns occur in a block at all."""
        return self._made("once", hyperscan.HS_FLAG_SINGLEMATCH)

    @cached_property
    def all(self) -> Any:
        """For blocks in which something occurs."""
        return self._made("all", 0)

    def _made(self, name: str, flags: int) -> Any:
        path = cache_folder() / f"patterns-{self._key}.{name}"
        if (kept := _read(path)) is not None:
            try:
                return hyperscan.loadb(kept, hyperscan.HS_MODE_BLOCK)
            except hyperscan.error:
                pass  # written by another machine or version: compile again
        indices = [i for i in range(len(self._regexes)) if i not in self.refused]
        database = _compile([self._regexes[i] for i in indices], indices, flags)
        _write(path, hyperscan.dumpb(database))
        return database


def _takes(regexes: list[bytes]) -> bool:
    try:
        _compile(regexes, [0], 0)
    except hyperscan.error:
        return False
    return True


def _compile(regexes: list[bytes], ids: list[int], flags: int) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    if not regexes:
        regexes, ids = [rb"\x00\x00doctor: nothing to look for\x00\x00"], [0]
    database.compile(expressions=regexes, ids=ids, elements=len(regexes), flags=[flags] * len(regexes))
    return database


def _read(path: Path) -> bytes | None:
    """Content of a cache file of ours; None where it is missing, damaged or somebody else's."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            f.write(hashlib.sha256(data).digest() + data)
        Path(f.name).replace(path)
    except OSError:
        return  # a read-only home costs time, not the diagnosis
