"""Some records out of many: at random, by length, by how much they repeat themselves, by odd characters."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from .questions import body, ratio
from .rows import Row

_ODD = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\u0080-\u009f\ufffd\u200b-\u200f\u202a-\u202e\u2066-\u2069\ue000-\uf8ff]")


def picked(rows: Sequence[Row], where: str, count: int, seed: int) -> list[Row]:
    """`count` records: random, first, longest, shortest, repetitive or odd; fewer where fewer are so."""
    if where == "random":
        some = random.Random(seed).sample(list(rows), min(count, len(rows)))
        return sorted(some, key=lambda r: (r.file.name, r.number))
    if where == "first":
        return list(rows[:count])
    if where == "longest":
        return sorted(rows, key=lambda r: -len(body(r)))[:count]
    if where == "shortest":
        return sorted(rows, key=lambda r: len(body(r)))[:count]
    if where == "repetitive":
        judged = [(ratio(body(r)), r) for r in rows if len(body(r)) >= 200]
        return [r for value, r in sorted(judged, key=lambda pair: pair[0])[:count] if value < 0.25]
    return [r for r in rows if _ODD.search(body(r))][:count]
