"""Which of all evidence a report shows: what decided, where it broke, and what stands beside it."""

from __future__ import annotations

from collections.abc import Iterable

from .hypotheses import evidence_of
from .predicates import Facts
from .types import Evidence, Hypothesis

# What always bears on a failure, most telling first, with how many lines of each are shown.
CONTEXT: tuple[tuple[str, int], ...] = (
    ("error.first", 1),
    ("error.user_frame", 2),
    ("error.message", 3),
    ("error.native_crash", 1),
    ("error.bare_kill", 1),
    ("memory.oom", 1),
    ("rank.silent_while_others_fail", 1),
    ("run.silent_end", 1),
    ("loss.first_nan_step", 1),
    ("loss.spike_step", 1),
    ("loss.equals_ln", 1),
    ("loss.zero", 1),
    ("eval.first_nan_step", 1),
)


def decisive(hypothesis: Hypothesis | None, facts: Facts, limit: int = 12) -> list[Evidence]:
    """What the leading hypothesis stands on, one piece per line of a file, most specific first."""
    if hypothesis is None:
        return []
    return _distinct(evidence_of(hypothesis, facts), limit)


def context(facts: Facts) -> list[Evidence]:
    """Where the run broke, whatever the verdict."""
    return _distinct((e for key, most in CONTEXT for e in facts.get(key)[:most] if e.kind != "asked"), 16)


def cascade(facts: Facts, limit: int = 4) -> list[Evidence]:
    """Lines that only follow from the failure."""
    return _distinct(facts.get("error.cascade"), limit)


def _distinct(evidence: Iterable[Evidence], limit: int) -> list[Evidence]:
    out: dict[object, Evidence] = {}
    for e in evidence:
        if e.kind == "asked":
            continue
        out.setdefault((e.file, e.line) if e.line else e.id, e)
    return list(out.values())[:limit]
