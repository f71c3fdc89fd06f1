"""A small head start for playbooks whose text fits the question and the first error: a steer, not evidence."""

from __future__ import annotations

from .predicates import Facts

STRONGEST = 1.0  # log odds given to the best match; a predicate weighs more
_KEYS = ("error.first", "error.message", "log.warning")


def prior(question: str, facts: Facts) -> dict[str, float]:
    """Playbook slug -> log odds between 0 and `STRONGEST`. No model and no database is loaded."""
    from ..index import lexical

    words = [question, *(str(e.value)[:300] for key in _KEYS for e in facts.get(key)[:3])]
    found = lexical.playbooks(" ".join(words)[:2000], k=12)
    if not found:
        return {}
    best = found[0].score
    return {f.document: STRONGEST * f.score / best for f in found if best > 0}
