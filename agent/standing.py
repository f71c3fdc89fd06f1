"""How the hypotheses stand at a moment of a diagnosis, for whoever watches it."""

from __future__ import annotations

from .events import Ranked
from .hypotheses import rank
from .planner import View

SHOWN = 40  # hypotheses; the rest are negligible


def ranking(view: View) -> Ranked:
    """The hypotheses as the evidence has them now, with the evidence that they cite."""
    found = rank(view.playbooks, view.facts, view.prior)[:SHOWN]
    cited = {i for h in found for i in (*h.supported_by, *h.contradicted_by)}
    known = {e.id: e for kept in view.facts.by_key.values() for e in kept if e.id in cited}
    return Ranked(tuple(found), tuple(known.values()))
