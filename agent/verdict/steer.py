"""Head starts: which causes a question and what a run shows sound like, before anything is weighed.

A steer and a reading order, not evidence: a cause that nothing in the run bears out is never more than a hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..core.types import Evidence
from ..reading.run.workspace import Workspace
from .meaning import says_nothing
from .predicates import Facts

LEAST, MOST = -1.0, 9.0  # log odds of the reader, as far as they count
RAISED = 1.0  # log odds from which a cause is weighed of which nothing was seen
TELLING, LINE = 20, 300  # lines of evidence that are read, characters of one
EXCERPT, HEAD, TAIL, FILE = 1200, 300, 900, 200_000  # characters of files, of one's ends, bytes of one
_KEYS = ("error.message", "error.first", "error.line", "log.telling", "log.warning", "error.cascade")
_FAILURE, FAILURE = ("error.first", "error.message"), 3
EACH, SIGNS = 6, 2  # lines of one key, of one signature


@dataclass(frozen=True, slots=True)
class Sounds:
    """What a question and a run sound like: cause -> log odds against an even guess, between `LEAST` and `MOST`.

    Attributes:
        whole: of the question, of what tells of a failure, and of the ends of small files.
        told: of the question and what tells of a failure, without the files.
        question: of the words of the question alone.
        failure: of the lines of the first failure alone.
        moved: log odds that corrections of earlier verdicts add.
    """

    whole: Mapping[str, float] = field(default_factory=dict)
    told: Mapping[str, float] = field(default_factory=dict)
    question: Mapping[str, float] = field(default_factory=dict)
    failure: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, float] = field(default_factory=dict)

    def of(self, cause: str) -> float:
        """How much the whole sounds like a cause, with what corrections add; 0 where nothing is known."""
        return self.whole.get(cause, 0.0) + self.moved.get(cause, 0.0)


def heard(question: str, facts: Facts, excerpt: str = "") -> Sounds:
    """What a question and a run sound like; nothing where the reader is missing."""
    question = "" if says_nothing(question) else question
    lines = list(dict.fromkeys([question, *_telling(facts)]))[:TELLING]
    failure = dict.fromkeys(_words(e) for key in _FAILURE for e in facts.get(key)[:FAILURE])
    whole = _read("\n".join([*lines, excerpt]))
    if not whole:
        return Sounds()
    return Sounds(whole, _read("\n".join(lines)), _read(question), _read("\n".join(failure)))


def _read(text: str) -> dict[str, float]:
    from ...index import reader

    said = reader.read(text) if text.strip() else None
    if not said:
        return {}
    even = math.log(len(said))
    return {cause: min(max(found + even, LEAST), MOST) for cause, found in said.items()}


def _words(e: Evidence) -> str:
    return (e.text or str(e.value)).strip()[:LINE]


def _telling(facts: Facts) -> Iterator[str]:
    """Lines that tell of a failure, as they stand in the run."""
    for key in _KEYS:
        yield from map(_words, facts.get(key)[:EACH])
    for key, found in facts.by_key.items():
        if key.startswith("sig."):
            yield from (e.text.strip()[:LINE] for e in found[:SIGNS])


def excerpt(ws: Workspace) -> str:
    """The ends of the small files of a run, the smallest first: what a person would paste."""
    return ws.memo("excerpt", lambda: "\n".join(_ends(ws))[:EXCERPT])


def _ends(ws: Workspace) -> Iterable[str]:
    roles = ("log", "config", "code", "environment", "capture", "other")
    room = EXCERPT
    for file in sorted(ws.by_role(*roles), key=lambda f: (f.size, f.name)):
        if room <= 0:
            return
        if 0 < file.size <= FILE and b"\0" not in ws.head(file):
            text = ws.text(file, FILE)
            text = text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"
            room -= len(text)
            yield text
