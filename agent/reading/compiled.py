"""A hyperscan database, compiled once: serialized into the cache under a hash of its patterns."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from pathlib import Path
from typing import Any

from ..paths import cache_folder

try:
    import hyperscan
except ImportError:  # no wheel for this machine
    hyperscan: Any = None

_FORMAT = b"5"
LOCK_SECONDS = 60


class Database:
    """One database over many patterns with their hyperscan flags, compiled once and kept in the cache.

    Attributes:
        refused: indices of patterns that hyperscan does not take.
    """

    def __init__(self, patterns: list[tuple[bytes, int]]) -> None:
        self._patterns = patterns
        digest = hashlib.sha256(_FORMAT + repr((hyperscan.__version__, platform.machine())).encode())
        for regex, flags in patterns:
            digest.update(flags.to_bytes(4, "big") + len(regex).to_bytes(4, "big") + regex)
        self._path = cache_folder() / f"patterns-{digest.hexdigest()[:24]}.hs"
        self.refused, self.made = self._kept() or self._once()

    def _once(self) -> tuple[frozenset[int], Any]:
        """Compile while the others wait: eight jobs that fail together must not compile eight times."""
        from filelock import FileLock, Timeout

        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self._path}.lock", timeout=LOCK_SECONDS):
                return self._kept() or self._fresh()
        except (OSError, Timeout):
            return self._fresh()

    def _kept(self) -> tuple[frozenset[int], Any] | None:
        kept = read_kept(self._path)
        if kept is None:
            return None
        head, _, body = kept.partition(b"\n")
        try:
            return frozenset(int(n) for n in head.split()), hyperscan.loadb(body, hyperscan.HS_MODE_BLOCK)
        except (hyperscan.error, ValueError):
            return None  # written by another machine or version: compile again

    def _fresh(self) -> tuple[frozenset[int], Any]:
        """All at once; one by one only where something is refused."""
        every = list(range(len(self._patterns)))
        refused: frozenset[int] = frozenset()
        try:
            made = self._compile(every)
        except hyperscan.error:
            refused = frozenset(i for i in every if not self._takes(i))
            made = self._compile([i for i in every if i not in refused])
        head = b" ".join(str(n).encode() for n in sorted(refused))
        keep(self._path, head + b"\n" + hyperscan.dumpb(made))
        return refused, made

    def _takes(self, index: int) -> bool:
        try:
            self._compile([index])
        except hyperscan.error:
            return False
        return True

    def _compile(self, indices: list[int]) -> Any:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        chosen = [self._patterns[i] for i in indices] or [(rb"\x00\x00nothing to look for\x00\x00", 0)]
        flags = [flags for _, flags in chosen]
        database.compile(
            expressions=[regex for regex, _ in chosen], ids=indices or [0], elements=len(chosen), flags=flags
        )
        return database


def read_kept(path: Path) -> bytes | None:
    """Content of a cache file of ours; None where it is missing, damaged or somebody else's."""
    try:
        if path.stat().st_uid != os.getuid():
            return None
        data = path.read_bytes()
    except OSError:
        return None
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def keep(path: Path, data: bytes) -> None:
    """Write a cache file in one step; a cache that cannot be written is done without."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            f.write(hashlib.sha256(data).digest() + data)
        Path(f.name).replace(path)
    except OSError:
        return  # a read-only home costs time, not the diagnosis
