"""How many processes a run had, by the name that somebody gave its log: `two_gpus.log`, `4nodes.txt`, `np8.out`."""

from __future__ import annotations

import re

_WORDS = {"one": 1, "single": 1, "two": 2, "dual": 2, "three": 3, "four": 4, "six": 6, "eight": 8, "sixteen": 16}
_THING = r"gpu|node|card|device|process|proc|machine"
_BEFORE = re.compile(
    rf"(?i)(?:^|[^a-z0-9])(?P<n>{'|'.join(_WORDS)}|[1-9]\d{{0,3}})[ _-]?(?:x[ _-]?)?"
    rf"(?P<what>{_THING})(?:e?s)?(?![a-z0-9])"
)
# A number behind a singular word names one of several (`gpu0`, `node3`); behind a plural it counts.
_BEHIND = re.compile(
    r"(?i)(?:^|[^a-z])(?:n?(?P<what>gpu|node|card|device|processe|proc|machine)s|np|nproc|world_?size)"
    r"[ _=-]?(?P<n>[1-9]\d{0,3})(?![0-9a-z])"
)


def count_named(name: str) -> tuple[str, int] | None:
    """What a name counts (`nodes` or `world_size`) and how many of them; None where it counts nothing."""
    found = {(_kind(m["what"]), _WORDS.get(m["n"].lower()) or int(m["n"])) for m in _BEFORE.finditer(name)}
    found |= {(_kind(m["what"]), int(m["n"])) for m in _BEHIND.finditer(name)}
    return found.pop() if len(found) == 1 else None


def _kind(what: str | None) -> str:
    return "nodes" if what and what.lower() in ("node", "machine") else "world_size"
