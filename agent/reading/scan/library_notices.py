"""Lines that are notices of libraries: what they say of a failure, they say in general.

A signature counts on one only where it names just that message: where one of its own examples is the same, or
what it finds are several words that the message fixes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..run.files import Line, RunFile
from ..run.lines import SHOWN, segments, strip
from ..run.program.library_messages import Message, Said, library_message
from .harvest import template
from .patterns import searcher

if TYPE_CHECKING:
    from ...core.playbook import Playbook
    from ..run.workspace import Workspace


class Kept(Protocol):
    """A line that a signature matches (`logpass.Hit`)."""

    @property
    def file(self) -> RunFile: ...
    @property
    def line(self) -> Line: ...
    @property
    def body(self) -> str: ...
    @property
    def number(self) -> int: ...


K = TypeVar("K", bound=Kept)
_MEANT = 12  # letters of a message


def notice(body: str, level: str | None = None) -> Said | None:
    """The notice of a library that a line is; None for events, for what speaks of a failure, and for text of data.

    Args:
        body: the line without its prefixes (`lines.strip`).
        level: what its header says.
    """
    said = library_message(body, level)
    return said if said is not None and said.message.kind == "notice" else None


def of_library(ws: Workspace, file: RunFile, body: str, level: str | None = None) -> Said | None:
    """The same, of a line that no statement of the run's own program printed."""
    said = notice(body, level)
    return said if said is not None and ws.ran.statement(file, body) is None else None


def counting(ws: Workspace, hits: dict[str, list[K]], books: Iterable[Playbook]) -> dict[str, list[K]]:
    """The hits of each playbook's signatures without those on a notice that the signature does not name.

    What happened is a fact, also where a library says it: an event counts.
    """
    signatures = {(p.key, n): (s.pattern, tuple(s.matches)) for p in books for n, s in enumerate(p.signatures)}

    def counts(name: str, hit: K) -> bool:
        said = of_library(ws, hit.file, hit.body)
        return said is None or names(*signatures.get((name, hit.number), ("", ())), said.message)

    kept = {name: [h for h in found if counts(name, h)] for name, found in hits.items()}
    return {name: found for name, found in kept.items() if found}


def signed(hits: Mapping[str, Iterable[Kept]]) -> set[tuple[str, int]]:
    """File and number of each line that a signature counts on."""
    return {(h.file.name, h.line.number) for found in hits.values() for h in found}


LINES = 20_000  # of a log that are asked what printed them


def printers(ws: Workspace, file: RunFile) -> Counter[str]:
    """How many lines of a log each library printed, by its name; `""` counts those of the program, `"?"` the others."""
    found: Counter[str] = Counter()
    known: dict[str, str] = {}
    for line in islice(ws.lines(file), LINES):
        for _, part in segments(line.data[:SHOWN]):
            s = strip(part.decode(errors="replace"))
            shape = template(s.body)
            if s.body.strip() and shape not in known and len(known) < LINES:
                own = ws.ran.statement(file, s.body) is not None
                said = None if own else library_message(s.body, s.level)
                known[shape] = "" if own else said.message.library if said is not None else "?"
            if s.body.strip():
                found[known.get(shape, "?")] += 1
    return found


def names(pattern: str, examples: tuple[str, ...], message: Message) -> bool:
    """Whether a signature means a message, and does not only meet a word of it or what stands in its places."""
    if message.template in _named(examples):
        return True
    search = searcher(pattern)
    found = search.search(message.text) if search is not None and pattern else None
    return found is not None and sum(c.isalpha() for c in found[0]) >= _MEANT


@cache
def _named(examples: tuple[str, ...]) -> frozenset[str]:
    """The messages that the examples of a signature are."""
    return frozenset(_templates(examples))


def _templates(examples: tuple[str, ...]) -> Iterator[str]:
    for example in examples:
        s = strip(example)
        if (said := library_message(s.body, s.level)) is not None:
            yield said.message.template
