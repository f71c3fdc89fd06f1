"""A small head start for playbooks whose text fits the question and the first error: a steer, not evidence."""

from __future__ import annotations

from .predicates import Facts

STRONGEST = 1.0  # log odds given to the best match; a predicate weighs more
_KEYS = ("error.first", "error.message", "log.warning")


def prior(question: str, facts: Facts) -> dict[str, float]:
    """Playbook slug -> log odds between 0 and `STRONGEST`. No model and no database is loaded."""
    from ..index import lexicon

    words = [question, *(str(e.value)[:300] for key in _KEYS for e in facts.get(key)[:3])]
    known = lexicon.load()
    scores, _ = known.scores(" ".join(words)[:2000])
    best: dict[str, float] = {}
    for number, score in scores.items():
        slug = known.chunks[number].document
        best[slug] = max(best.get(slug, 0.0), score)
    top = max(best.values(), default=0.0)
    return {slug: STRONGEST * score / top for slug, score in best.items()} if top > 0 else {}
