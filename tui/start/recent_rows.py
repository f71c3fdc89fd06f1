"""Earlier diagnoses as rows, and what is told of the one under the cursor."""

from __future__ import annotations

from pathlib import PurePath

from textual.content import Content

from ...agent.chat.recent import DAMAGED, OTHER, UNFINISHED, Recent, ago
from .rows import Draw, columns, shown

_WORDS = {"insufficient_evidence": "insufficient", OTHER: "other version"}
_STYLES = {"confirmed": "bold", "likely": "bold", UNFINISHED: "$text-warning", DAMAGED: "$text-error"}
_STATUS, _AGE, _RUN = 13, 10, (14, 30)
_CAUSE = (24, 34)
_QUESTION = 24  # columns from which a question is worth its place


def row(entry: Recent, now: float) -> Draw:
    """Status, cause, run, age, and the question where there is room for it."""

    def draw(width: int) -> Content:
        room = width - 2 - _STATUS - _AGE - 3
        cause = min(_CAUSE[1], max(_CAUSE[0], room * 2 // 5))
        left = room - cause
        run = left if left < _RUN[0] + _QUESTION else max(_RUN[0], min(_RUN[1], left * 2 // 5))
        parts = [
            (shown(_WORDS.get(entry.status, entry.status), _STYLES.get(entry.status, "")), _STATUS),
            (shown(entry.cause or _without_cause(entry)), cause),
            (_run(entry), run),
            (shown(ago(entry.time, now), "$text-muted"), _AGE),
        ]
        if left - run >= _QUESTION:
            parts.append((shown(" ".join(entry.question.split()), "$text-muted"), left - run - 1))
        return columns(parts)

    return draw


def _without_cause(entry: Recent) -> str:
    if entry.status == UNFINISHED:
        return f"left at: {entry.waiting}" if entry.waiting else "ended before its report"
    return entry.title if entry.status == "answer" and entry.title else "-"


def _run(entry: Recent) -> Content:
    if entry.file:
        return shown(f"in {entry.file.parent.name or entry.file.parent}")
    if not entry.roots:
        return shown("no run" if entry.opens and entry.status != UNFINISHED else "-", "$text-muted")
    first, *others = entry.roots
    more = f" +{len(others)}" if others else ""
    gone = "! gone: " if entry.there is False else ""
    return shown(f"{gone}{PurePath(first).name or first}{more}", "$text-warning" if gone else "")


def details(entry: Recent, now: float) -> Content:
    """Two lines: the question, and where all of it is."""
    asked = " ".join(entry.question.split())
    first = shown(asked, limit=600) if asked else shown("no question was kept", "$text-muted")
    return Content("\n").join([first, shown(", ".join(_facts(entry, now)), "$text-muted", limit=600)])


def _facts(entry: Recent, now: float) -> list[str]:
    if entry.status in (OTHER, DAMAGED):
        what = "of another version of doctor" if entry.status == OTHER else "damaged or no report"
        return [f"! {entry.file or entry.session} is {what}: diagnose the run again"]
    roots = ", ".join(entry.roots) or ("run not kept" if entry.status == UNFINISHED else "no run")
    facts = [f"left by a job: {entry.file}" if entry.file else f"session {entry.session}"]
    facts += [f"waits for your yes to {entry.waiting}"] if entry.waiting else []
    if entry.status == UNFINISHED:
        facts += ["no report yet; may still run elsewhere"]
    elif not entry.file:
        facts.append(f"{entry.questions} question{'s' if entry.questions != 1 else ''}")
    gone = "! its run is gone: " if entry.there is False else ""
    unsure = " (does not answer)" if entry.there is None and entry.roots and not entry.file else ""
    return [*facts, ago(entry.time, now), f"{gone}{roots}{unsure}"]
