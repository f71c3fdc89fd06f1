"""What ranks announce about their share of the data: unequal counts mean that they cannot make the same steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import Line, RunFile
from .lines import strip
from .logpass import logpass

if TYPE_CHECKING:
    from ..workspace import Workspace

LINES = 2000  # of the head of each log
_THINGS = r"(?:mini-?)?batches|steps|iterations|samples|examples|records|sequences|shards"
_KINDS = ("batch", "step", "iteration", "sample", "example", "record", "shard")
_COUNT = re.compile(
    rf"(?i)\b(?P<before>\d[\d,]*) (?P<noun>{_THINGS})\b"
    rf"|\b(?P<name>(?:num|number|n|total|local)?[_ ]?(?:of )?(?:{_THINGS})|steps_per_epoch|len\(\w*loader\)"
    r"|(?:loader|dataset)[_ ](?:len(?:gth)?|size))(?: is|:| =|=)? ?(?P<after>\d[\d,]*)\b"
)
# A rank that says so has nothing left to do; it has not died.
DONE = re.compile(
    r"(?i)\b(?:finished|exhausted|ran out of|no more (?:data|batches|samples)|end of (?:the )?"
    r"(?:epoch|data\w*|training)"
    r"|training (?:done|complete\w*)|epoch \S{1,8} (?:done|complete\w*|ended)"
    r"|waiting (?:at|for) (?:the )?(?:barrier|other|end))\b"
)


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's count of one thing, with its line."""

    rank: int
    count: int
    file: RunFile
    line: Line


def unequal(ws: Workspace) -> list[tuple[str, Share, Share]]:
    """`(thing, smallest, largest)` for each thing of which ranks announce different numbers, once per rank."""
    found: dict[str, dict[int, Share]] = defaultdict(dict)
    silent: set[bytes] = set()  # wordings that announce nothing: ranks say the same things
    for summary in logpass(ws).files.values():
        if summary.file.role == "log" and not summary.file.good:
            for thing, share in _shares(summary.file, summary.harvest.head, silent):
                found[thing].setdefault(share.rank, share)
    out = []
    for thing, shares in found.items():
        low, high = (f(shares.values(), key=lambda s: s.count) for f in (min, max))
        if len(shares) > 1 and low.count != high.count:
            out.append((thing, low, high))
    return out


def _shares(file: RunFile, head: bytes, silent: set[bytes]) -> Iterator[tuple[str, Share]]:
    offset = 0
    for number, data in enumerate(head.split(b"\n")[:LINES], 1):
        wording = data[:400].translate(None, b"0123456789")
        text = "" if wording in silent else data[:400].decode(errors="replace")
        m = _COUNT.search(text)
        if m is None:
            silent.add(wording)
        else:
            told = strip(text)
            rank = file.rank if file.rank is not None else told.rank
            noun = (m["noun"] or m["name"]).lower()
            thing = next((t for t in _KINDS if t in noun), noun)
            if rank is not None:
                count = int((m["before"] or m["after"]).replace(",", ""))
                yield thing, Share(rank, count, file, Line(number, offset, data))
        offset += len(data) + 1
