"""Head starts: which causes a question and what a run shows sound like, before anything is weighed.

A steer and a reading order, not evidence: a cause that nothing in the run bears out is never more than a hypothesis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from ..core.playbook import Playbook
from ..reading.run.workspace import Workspace
from .predicates import Facts

WEIGHT = 0.5  # log odds of a head start for one of the reader's
LEAST, MOST = -1.0, 9.0  # the reader's log odds against an even guess, as far as they count
RAISED = 0.5  # log odds from which a cause is weighed of which nothing was seen
TELLING, LINE = 20, 300  # lines of evidence that are read, characters of one
EXCERPT, HEAD, TAIL, FILE = 1200, 300, 900, 200_000  # characters of files, of one's ends, bytes of one
_KEYS = ("error.message", "error.first", "error.line", "log.telling", "log.warning", "error.cascade")
EACH, SIGNS = 6, 2  # lines of one key, of one signature


def prior(question: str, facts: Facts, playbooks: Sequence[Playbook], excerpt: str = "") -> dict[str, float]:
    """Playbook slug -> log odds between `WEIGHT * LEAST` and `WEIGHT * MOST`; nothing where the reader is missing."""
    from ...index import reader

    lines = list(dict.fromkeys([question, *_telling(facts)]))[:TELLING]
    said = reader.read("\n".join([*lines, excerpt]))
    if not said:
        return {}
    even = math.log(len(said))
    return {
        p.slug: WEIGHT * min(max(said[p.cause] + even, LEAST), MOST)
        for p in playbooks
        if p.cause in said and not p.cause.startswith("none.")
    }


def _telling(facts: Facts) -> Iterator[str]:
    """Lines that tell of a failure, as they stand in the run."""
    for key in _KEYS:
        yield from ((e.text or str(e.value)).strip()[:LINE] for e in facts.get(key)[:EACH])
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
