"""Which lines tell of an attempt that is not the one to explain.

Two are set aside: attempts that failed before another one came to the end, and attempts that were started after a
failure and never got as far as a step. What stops those (a folder or a port that the first attempt left behind) came
of the restart; the first failure is the one to explain.
"""

from __future__ import annotations

from collections.abc import Callable

from .predicates import Facts
from .types import Evidence

STILLBORN = "run.restart_stillborn"
ABOUT_RESTARTS = frozenset({"resume", "load"})  # who asks about these asks about the later attempt
WORDS = 80  # characters of a line by which its copy in another log is known


def set_aside(facts: Facts) -> Callable[[Evidence], bool] | None:
    """Whether a line belongs to such an attempt; None where the run has none."""
    place = _before_the_last(facts) if facts.get("run.recovered") else _after_the_first(facts)
    if place is None:
        return None
    file, line, later = place

    def beyond(e: Evidence) -> bool:
        return e.file == file and e.line is not None and (e.line > line if later else e.line <= line)

    copied = {e.text.strip()[-WORDS:] for found in facts.by_key.values() for e in found if beyond(e) and e.text.strip()}
    return lambda e: beyond(e) or (e.file != file and e.line is not None and e.text.strip()[-WORDS:] in copied)


def _before_the_last(facts: Facts) -> tuple[str | None, int, bool] | None:
    begun = [e for e in facts.get("run.restarted") if e.line is not None]
    if len({e.file for e in begun}) != 1:
        return None
    return begun[0].file, max(e.line or 0 for e in begun), False


def _after_the_first(facts: Facts) -> tuple[str | None, int, bool] | None:
    if ABOUT_RESTARTS & {str(e.value) for e in facts.get("question.symptom")}:
        return None
    begun = facts.get(STILLBORN)
    first = facts.get("error.first")
    if len(begun) != 1 or not first:
        return None
    file, line = begun[0].file, begun[0].line or 0
    known = any(e.file == file and e.line is not None and e.line <= line for e in first)
    return (file, line, True) if known else None
