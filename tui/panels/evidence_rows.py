"""What a row of the evidence says: in which order, which word for its kind, where it stands, whom it is of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...agent.telling.outline import place

if TYPE_CHECKING:
    from ...agent.core.report import CitedEvidence, Report
    from ...agent.core.types import Evidence

NARROW = 48  # cells of the last column; below, the head that a logger put before a line would fill it
RIVALS, SIGNS = 4, 4  # causes whose evidence counts as cited, and how much of it for and against each
_TEXT = 2_000  # characters of a text that a row is made of; the list shows what fits
# The word that stands where a line has its file.
_KINDS = {"absent": "not there", "asked": "question", "document": "document", "command": "command", "binary": "record"}


@dataclass(slots=True)
class Entry:
    """A piece of evidence in the list, and whether a sentence of the report cites it."""

    fact: CitedEvidence
    cited: bool = False
    searched: str = ""  # what a filter looks in, made when first asked

    @property
    def haystack(self) -> str:
        """All that a person could look for, in small letters."""
        if not self.searched:
            e = self.fact
            who = f"rank {e.rank} rank{e.rank} " if e.rank is not None else ""
            said = f"{e.id} {e.key} {_KINDS.get(e.kind, '')} {place(e)} {who}{e.host or ''} {e.text}"
            self.searched = said.lower()
        return self.searched


def entries(report: Report) -> list[Entry]:
    """The evidence of a report: what it cites in the order of its story, then the rest as it was found."""
    by_id = {e.id: e for e in report.evidence}
    wanted = [i for s in report.summary for i in s.cites] + [link.evidence for link in report.chain]
    wanted += [i for a in report.also for i in a.cites]
    for d in report.differential[:RIVALS]:
        wanted += [*d.supported_by[:SIGNS], *d.contradicted_by[:SIGNS]]
    first = [i for i in dict.fromkeys(wanted) if i in by_id]
    cited = set(first)
    return [Entry(by_id[i], True) for i in first] + [Entry(e) for e in report.evidence if e.id not in cited]


def fact(e: Evidence) -> CitedEvidence:
    """Evidence as tools make it, in the form that a report has it in."""
    from ...agent.core.report import CitedEvidence

    return CitedEvidence.model_construct(**e.as_dict())


def identity(e: CitedEvidence) -> tuple[object, ...]:
    """What tells two pieces apart before they have ids."""
    return (e.key, e.kind, e.run, e.file, e.line, e.member, e.rank, e.text[:200], str(e.value)[:200])


def where(e: CitedEvidence) -> str:
    """The second column: file and line, or the word for a kind that has none."""
    return _KINDS[e.kind] if e.kind in _KINDS else place(e)


def who(e: CitedEvidence) -> str:
    """`3`, the rank; a host where none is named."""
    return str(e.rank) if e.rank is not None else e.host or ""


def text(e: CitedEvidence) -> str:
    """The last column: the line itself; of what has no line, what it states."""
    if e.kind == "absent":
        default = "" if e.value is None else f"; the default is {value(e)}"
        return f"{e.key}{default}"
    said = e.text[:_TEXT].strip() or f"{e.key} = {value(e)}"
    if e.kind == "command":
        return f"{' '.join(e.argv or ())}: {said}"
    if e.kind in ("binary", "document"):
        return f"{place(e)}: {said}"
    return said


def bare(e: CitedEvidence) -> str:
    """The last column where there is little room: a line without time, rank and level, as the piece below has them."""
    if e.kind != "line":
        return text(e)
    from ...agent.telling.views.excerpt import without_head

    return without_head(text(e))


def value(e: CitedEvidence) -> str:
    """A value in words that can be put on one line."""
    return e.value if isinstance(e.value, str) else json.dumps(e.value, ensure_ascii=False, default=str)


def about(e: CitedEvidence) -> str:
    """What it states and of whom: the head of the piece that is shown in full."""
    what = "" if e.kind == "absent" or e.value is None or e.value is True else f" = {value(e)}"
    named = (("rank", e.rank), ("host", e.host), ("attempt", e.attempt), ("variant", e.variant), ("step", e.step))
    told = [f"{name} {of}" for name, of in named if of is not None] + ([f"at {e.time}"] if e.time else [])
    return ", ".join([f"{e.key}{what}", *told, *([f"found by {e.tool}"] if e.tool else [])])


def whole(e: CitedEvidence) -> str:
    """Its text with what was searched or run; what stands below the head."""
    if e.kind == "absent":
        return f"searched {', '.join(e.searched or []) or 'the files of the run'}"
    if e.kind == "command":
        return f"$ {' '.join(e.argv or ())}\n{e.text}"
    return e.text.strip() or value(e)
