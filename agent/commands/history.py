"""`doctor history`: what jobs of this team failed of before, and which nodes and causes come again."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import options

if TYPE_CHECKING:
    from ..history.corrections import Correction
    from ..history.diagnoses import Entry
    from ..history.recurring import Recurring

_SINCE = re.compile(r"(\d{1,5})([hdw])")
_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


def history(
    cause: Annotated[str, typer.Option(help="Only this cause.", metavar="ID", show_default=False)] = "",
    node: Annotated[str, typer.Option(help="Only what named this node.", metavar="NAME", show_default=False)] = "",
    job: Annotated[
        str, typer.Option(help="Only jobs with this in their name or folder, or of this id.", show_default=False)
    ] = "",
    since: Annotated[str, typer.Option(help="Only the last 12h, 30d, 8w ...", metavar="TIME", show_default="all")] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    json: options.Json = False,
) -> None:
    """List earlier diagnoses by job, cause and node, and what comes again and again.

    Kept in the state folder, or in the folder that `history` in doctor.toml (DOCTOR_HISTORY) names, which a team may
    share. `doctor feedback` says what a diagnosis really was.
    """
    from dataclasses import asdict

    from ..config import settle
    from ..history import corrections, diagnoses, recurring
    from ..history.database import Unusable, reading
    from ..history.place import place_of
    from ..store import usable_state
    from .streams import print_json, print_line

    settle()
    place = place_of(usable_state()[0])
    wanted = diagnoses.Wanted(_known(cause), node, job, _span(since), limit)

    def look(base: Any) -> tuple[list[Entry], list[Recurring], list[Recurring], list[Correction]]:
        often = recurring.recurring_nodes(base), recurring.recurring_causes(base)
        return diagnoses.found(base, wanted), *often, corrections.everything(base)

    try:
        found, nodes, causes, corrected = reading(place, look, ([], [], [], []), seconds=20.0)
    except Unusable as e:
        raise UsageError(str(e)) from None
    truth = {c.session: c for c in corrected}
    if json:
        entries = [asdict(e) | {"truth": truth[e.session].truth if e.session in truth else None} for e in found]
        often = {"nodes": [asdict(r) for r in nodes], "causes": [asdict(r) for r in causes]}
        print_json({"place": str(place.folder), "diagnoses": entries, "recurring": often})
        return
    for line in _lines(found, truth) or ["Nothing yet: every diagnosis is kept here."]:
        print_line(line)
    for title, often in (("Nodes that come again", nodes), ("Causes that come again", causes)):
        if often and not (cause or node or job or since):
            print_line(f"\n{title}")
            for line in map(_recurring, often):
                print_line(line)


def _lines(found: list[Entry], truth: dict[str, Correction]) -> list[str]:
    from ..sanitize import one_line

    lines = []
    for e in found:
        cause = e.cause
        if (known := truth.get(e.session)) is not None:
            cause += " (right)" if known.truth == e.cause else f", really {known.truth}"
        where = [f"on {', '.join(e.nodes)}"] if e.nodes else []
        where += [f"step {e.step}"] if e.step is not None else []
        job = e.job or e.folder or "-"
        named = f"{job} ({e.job_id})" if e.job_id else job
        lines.append(one_line(f"{e.time.replace('T', ' ')[:16]}  {e.status:<13}  {cause}  {' '.join(where)}".rstrip()))
        lines.append(f"  {one_line(f'{named}  {e.user}@{e.host}  {e.session}')}")
    return lines


def _recurring(r: Recurring) -> str:
    from ..sanitize import one_line

    return one_line(f"  {r.name}  {r.times} of the last {r.of}, last {r.last[:10]}")


def _known(cause: str) -> str:
    """A cause as it was typed, if there is one of that name."""
    from .causes import known_cause

    return known_cause(cause) if cause else ""


def _span(text: str) -> timedelta | None:
    if not text:
        return None
    found = _SINCE.fullmatch(text.strip().lower())
    if found is None:
        raise UsageError(f"--since {text[:40]!r} is no span of time", "12h, 30d or 8w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})
