"""Every distinct error trace of a run as it stands in its log, the first failure first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..reading.failure import Failure
    from ..reading.failures import Failures, Group
    from .context import Context

MOST = 100
BYTES = 64 << 10  # of one trace
TOTAL = 2 << 20
RANKS = 16


def traces_text(found: Failures, context: Context) -> str:
    """All of them, each under a line that says where it stands and how often it came."""
    out, size = [], 0
    groups = ordered(found)
    for number, group in enumerate(groups[:MOST], 1):
        text = f"== {number} of {len(groups)}: {headline(found, group)}\n{trace(group.lead, context)}\n"
        size += len(text)
        if size > TOTAL:
            out.append(f"[{len(groups) - number + 1} more left out]\n")
            break
        out.append(text)
    return "\n".join(out)


def ordered(found: Failures) -> list[Group]:
    """Events with that of the first failure in front; consequences last."""
    first = found.first

    def place(group: Group) -> tuple[bool, bool]:
        return not _holds(group, first), bool(group.lead.cascade)

    return sorted(found.groups, key=place)


def first_group(found: Failures) -> Group | None:
    """The event that the first failure belongs to."""
    return next((g for g in found.groups if _holds(g, found.first)), None)


def telling(found: Failures) -> Group | None:
    """The event to quote: the first failure's, or where only a launcher or a watchdog told of that, what has frames."""
    groups = ordered(found)
    first = first_group(found)
    if first is not None and not first.lead.cascade:
        return first
    return next((g for g in groups if g.lead.frames), None) or first or next(iter(groups), None)


def _holds(group: Group, first: Failure | None) -> bool:
    return first is not None and any(m is first or m.origin is first for m in group.members)


def headline(found: Failures, group: Group) -> str:
    """What, on which ranks, how often, where, when."""
    lead = group.lead
    told = [lead.text.split("\n")[0][:200]]
    if ranks := group.ranks:
        told.append(f"rank {_ranges(ranks)}")
    if len(group.members) > 1:
        told.append(f"{len(group.members)} times")
    told.append(f"{lead.file.name}:{(lead.start or lead.line).number}")
    if lead.frames:
        told.append(f"raised in {lead.frames[-1].path}:{lead.frames[-1].number}")
    if lead.stamp:
        told.append(lead.stamp.text)
    if lead.cascade:
        told.append(f"a consequence ({lead.cascade})")
    if _holds(group, found.first):
        told.append("the first failure" if found.first_known else "taken for the first failure; times do not tell")
    return ", ".join(told)


def trace(failure: Failure, context: Context) -> str:
    """The lines of one failure as its log has them, without secrets and those of other ranks in between."""
    begin = failure.start or failure.line
    chain, start = failure.cause, begin.offset
    while chain is not None and chain.file.name == failure.file.name:  # what it was raised from stands above it
        start = min(start, (chain.start or chain.line).offset)
        chain = chain.cause
    ends = [failure.line, *(line for line, _ in failure.details), *(f.line for f in failure.frames)]
    end = max(line.offset + len(line.data) for line in ends)
    text = context.lines(failure.file.name, start, min(end, start + BYTES))[1] or failure.line.text
    cut = f"\n[{end - start - BYTES} bytes left out]" if end - start > BYTES else ""
    return "\n".join(_own(text, failure)) + cut


def _own(text: str, failure: Failure) -> Iterator[str]:
    from ..reading.lines import strip

    for line in text.split("\n"):
        rank = strip(line).rank
        if rank is None or failure.rank is None or rank == failure.rank:
            yield line.rstrip("\r")


def _ranges(ranks: list[int]) -> str:
    """`0-7, 12`."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    told = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans]
    return ", ".join(told[:RANKS]) + (f" and {len(told) - RANKS} more stretches" if len(told) > RANKS else "")
