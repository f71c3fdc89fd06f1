"""How many parameters a run says that it trains, and of how many.

Libraries and programs print lines for the whole and for what is trained, in parts (`decayed`, `non-decayed`) or in one
(`Trainable params`). The line of PEFT that has both (`trainable%`) is left out: it is printed where a part is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..run.files import Line, RunFile

_NUMBER = r"(?P<n>\d[\d,_]*(?:\.\d+)?)(?:\s*(?P<unit>[KkMmBbGgTt](?:illions?|illion)?)\b)?"
_BEFORE = re.compile(
    _NUMBER + r"\s+(?P<words>(?:[A-Za-z\-]+ ){0,3}param(?:eter)?s?\b(?!\s*(?:tensors?|groups?)))", re.I
)
_BEHIND = re.compile(
    r"(?P<words>[A-Za-z\-# /()]{0,40}param(?:eter)?s?\b[A-Za-z \-()]{0,30})\s*[:=|]?\s*(?:is |are )?[:=~≈]?\s*"
    + _NUMBER,
    re.I,
)
_TRAINED = re.compile(
    r"(?i)(?<!non-)(?<!non )(?<!non_)(?<!un)trainable|\btrained\b|\bto (?:train|optimi[sz]e)|optimi[sz]|decay"
)
_KEPT = re.compile(
    r"(?i)non[-_ ]?trainable|untrainable|frozen|not trained|fixed|active|per (?:layer|rank|gpu|device|expert)"
)
_TENSORS = re.compile(r"(?i)parameter tensors?\b.{0,30}\bwith\b")
_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_FEWEST = 2.0  # the whole must be larger than what is trained by this factor, to be told from a rounded number of it


@dataclass(frozen=True, slots=True)
class Count:
    """A number of parameters in a line of a log; `trained` says of which."""

    file: RunFile
    line: Line
    number: float
    trained: bool


@dataclass(frozen=True, slots=True)
class Share:
    """What is trained of the whole: a share from 0 to 1, the lines that say what is trained, and the whole's."""

    share: float
    trained: tuple[Count, ...]
    whole: Count


def counts(lines: Iterable[tuple[RunFile, Line]]) -> Iterator[Count]:
    """The numbers of parameters that lines tell, each number once."""
    for file, line in lines:
        if b"aram" not in line.data and b"PARAM" not in line.data:
            continue
        text = line.text[:400]
        if "trainable%" in text:
            continue
        seen: set[int] = set()
        tensors = _TENSORS.search(text) is not None
        for m in (*(() if tensors else _BEHIND.finditer(text)), *_BEFORE.finditer(text)):
            words = text if tensors else m["words"]
            if m.start("n") in seen or _KEPT.search(words.replace("non-decay", "")) or text[m.end() :].startswith("%"):
                continue
            seen.add(m.start("n"))
            unit = _UNITS.get((m["unit"] or "").lower()[:1], 1.0)
            yield Count(
                file, line, float(m["n"].replace(",", "").replace("_", "")) * unit, bool(_TRAINED.search(words))
            )


def trained_share(found: Iterable[Count]) -> Share | None:
    """What is trained of the whole, of the first model that a log tells both of; None where it does not."""
    known = list(found)
    for whole in (c for c in known if not c.trained and c.number > 0):
        own = [c for c in known if c.trained and c.file is whole.file]
        if len({c.line.text[:12] for c in own}) > 1 and not all(_TENSORS.search(c.line.text) for c in own):
            own = own[:1]
        told = sum(c.number for c in own)
        if own and told <= whole.number / _FEWEST:
            return Share(told / whole.number, tuple(own), whole)
    return None
