"""Checkpoints as a walk sees them: smaller than those before, with shards missing, or none for long."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from statistics import median

from .folder import Seen
from .kinds import LIMITS, Found, Told
from .other_curves import amount
from .pace import span

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
            elif self._told.first(family):
                again = self._told.again(family)
                text = f"no checkpoint after {family.rpartition('/')[2]}{numbers[-1]}, written {span(since)} ago"
                yield Found("checkpoint_overdue", text, since, f"one each {span(usual)}", again=again)


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
