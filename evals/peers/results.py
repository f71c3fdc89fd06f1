"""The peers' table: counts over verdicts, doctor's beside them, as data and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median
from typing import Any

from ...agent.core.errors import UsageError
from .verdicts import Verdict, mapping

BEGIN, END = "<!-- peers -->", "<!-- /peers -->"


def row(peer: str, version: str, verdicts: Sequence[Verdict], doctor: Mapping[str, bool]) -> dict[str, Any]:
    """One peer's counts.

    Args:
        doctor: whether doctor named the cause, by incident; only incidents that it has are compared.
    """
    faults = [v for v in verdicts if v.fault]
    scope = [v for v in faults if v.in_scope]
    quiet = [v for v in verdicts if not v.fault]
    return {
        "peer": peer,
        "version": version,
        "faults": len(faults),
        "right": sum(v.right for v in faults),
        "among": sum(v.among for v in faults),
        "scope": len(scope),
        "scope_right": sum(v.right for v in scope),
        "scope_among": sum(v.among for v in scope),
        "doctor": [sum(doctor[v.id] for v in faults if v.id in doctor), sum(v.id in doctor for v in faults)],
        "doctor_on_scope": [sum(doctor[v.id] for v in scope if v.id in doctor), sum(v.id in doctor for v in scope)],
        "nothing_to_find": len(quiet),
        "blamed": sum(v.blamed for v in quiet),
        "silent_on_faults": sum(not v.labels and not v.error for v in faults),
        "errors": sum(bool(v.error) for v in verdicts),
        "seconds_median": round(median([v.seconds for v in verdicts] or [0.0]), 2),
    }


def as_data(rows: list[dict[str, Any]], verdicts: Sequence[Verdict], sets: Mapping[str, int]) -> dict[str, Any]:
    """Everything, with the date: what ran, on which incidents, what each peer said of each."""
    return {
        "schema": "traindoctor.peers/1",
        "date": datetime.now(UTC).date().isoformat(),
        "incidents": dict(sets),
        "rows": rows,
        "absent": mapping()["absent"],
        "verdicts": [asdict(v) for v in verdicts],
    }


def markdown(data: Mapping[str, Any]) -> str:
    """The table with what it needs to be read: date, incidents, scopes, and who is not in it."""
    incidents = ", ".join(f"{n} of {name}" for name, n in data["incidents"].items())
    lines = [
        f"Run on {data['date']}: {incidents}.",
        "",
        "| program | version | faults named | among its answers | on its own scope | doctor, same scope "
        "| nothing to find: blamed | silent on faults | no answer | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in data["rows"]:
        lines.append(
            f"| {r['peer']} | {r['version']} | {_share(r['right'], r['faults'])} | {_share(r['among'], r['faults'])} "
            f"| {_share(r['scope_right'], r['scope'])} | {_share(*r['doctor_on_scope'])} "
            f"| {r['blamed']} of {r['nothing_to_find']} | {r['silent_on_faults']} | {r['errors']} "
            f"| {r['seconds_median']} |"
        )
    if data["rows"] and data["rows"][0]["doctor"][1]:
        lines += ["", f"doctor, offline, on all faults: {_share(*data['rows'][0]['doctor'])}."]
    lines += ["", "What they are, and are not, made for:", ""]
    for r in data["rows"]:
        about = mapping()["peers"][r["peer"]]
        lines.append(f"- **{r['peer']}**: {about['about']}. Not for: {about['not_for']}.")
    lines += [f"- **{name}** is not in the table: {why}." for name, why in data["absent"].items()]
    return "\n".join(lines) + "\n"


def put_into(page: str, text: str, begin: str = BEGIN, end: str = END) -> str:
    """The page with what stands between two marks replaced.

    Raises:
        UsageError: the page lacks one of the marks.
    """
    head, found, rest = page.partition(begin)
    _, closed, tail = rest.partition(end)
    if not (found and closed):
        raise UsageError(f"no {begin} ... {end} in the page")
    return f"{head}{begin}\n{text}{end}{tail}"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({part / whole:.0%})" if whole else "-"
