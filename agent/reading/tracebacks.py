"""Tracebacks as units, also where many ranks are interleaved; chains know which exception came first."""

from __future__ import annotations

import re

from .anchors import cascade_kind, is_harmless
from .failure import Failure, Kind, Read
from .files import RunFile
from .lines import is_bar
from .unit import ALONE, FILE_LINE, INSIDE, NATIVE, START, Unit


class Parser:
    """Feeds the lines of one file and hands out its failures. Lines of different ranks may be interleaved."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._open: dict[tuple[int | None, str | None], Unit] = {}
        self._last_rank: tuple[int, int] | None = None  # (line, rank) of the last ranked line of an error
        self.failures: list[Failure] = []

    def feed(self, read: Read) -> bool:
        """Take a line; whether it was part of a failure."""
        s = read.stripped
        key = (s.rank, s.source)
        unit = self._open.get(key)
        if unit is not None:
            if unit.takes(read):
                return True
            if not unit.after and unit.failure.frames and unit.foreign < 20 and self._is_foreign(read):
                unit.foreign += 1
                return False
            self._close(key)
        if s.rank is not None and s.level in ("error", "fatal"):
            self._last_rank = (read.line.number, s.rank)
        return self._begin(read, key, unit)

    def finish(self) -> list[Failure]:
        """All failures, in the order in which they began."""
        for key in list(self._open):
            self._close(key)
        self.failures.sort(key=lambda f: (f.start or f.line).number)
        return self.failures

    @staticmethod
    def _is_foreign(read: Read) -> bool:
        return is_bar(read.line.data) or (read.stripped.header and not START.match(read.body))

    def _begin(self, read: Read, key: tuple[int | None, str | None], before: Unit | None) -> bool:
        body = read.body.rstrip()
        linked = before.failure if before is not None and before.after else None
        if m := START.match(body):
            kind = m["before"].strip()
            inner = kind.endswith("Original") or (linked is not None and linked.name.endswith("ExceptionGroup"))
            chained = linked if before is not None and (before.linked or inner) else None
            unit = self._new(read, key, "python")
            unit.notebook = bool(re.search(r"\w {4,}$", m["before"]))
            self._link(unit, chained, inner)
            return True
        if before is not None and before.after and (m := FILE_LINE.match(body)):
            unit = self._new(read, key, "python")
            self._link(unit, linked, inner=True)
            return unit.takes(read)
        if (m := NATIVE.search(body)) and not is_harmless(body):
            unit = self._new(read, key, "native")
            unit.inward = False
            unit.failure.type, unit.failure.message = m[0].strip(" !*:="), body.strip()[:400]
            return True
        return self._alone(read, key, body)

    def _alone(self, read: Read, key: tuple[int | None, str | None], body: str) -> bool:
        if not body or body[0] in " \t{\"'#" or is_harmless(body):
            return False
        m = ALONE.match(body)
        if m is None and read.stripped.level in ("error", "fatal"):
            m = INSIDE.search(body[:4000])
        if m is None:
            return False
        unit = self._new(read, key, "exception")
        unit.raised(read, m)
        return True

    def _new(self, read: Read, key: tuple[int | None, str | None], kind: Kind) -> Unit:
        s, f = read.stripped, self._file
        rank = key[0] if key[0] is not None else f.rank
        if rank is None and s.source is None and self._last_rank and read.line.number == self._last_rank[0] + 1:
            rank = self._last_rank[1]  # the unlabelled rest of a message that a labelled line began
        failure = Failure(
            f,
            kind,
            read.line,
            rank=rank,
            host=s.host or f.host,
            source=s.source,
            stamp=read.stamp,
            attempt=f.attempt,
            repeated=s.repeated,
            start=read.line,
        )
        self._open[key] = unit = Unit(read, failure)
        return unit

    @staticmethod
    def _link(unit: Unit, other: Failure | None, inner: bool) -> None:
        """Chain two units: an inner one (Ray, DataLoader workers) is the origin of the one printed before it."""
        if other is None:
            return
        if inner:
            other.origin.cause = unit.failure if other.origin is not unit.failure else None
        else:
            unit.failure.cause = other

    def _close(self, key: tuple[int | None, str | None]) -> None:
        unit = self._open.pop(key)
        f = unit.failure
        if not unit.inward:
            f.frames.reverse()
        if f.type or f.frames:
            f.cascade = cascade_kind(f.text) or next(
                (k for _, d in f.details if (k := cascade_kind(d)) == "peer_lost"), None
            )
            self.failures.append(f)
