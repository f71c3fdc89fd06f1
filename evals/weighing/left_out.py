"""Which rules hold for which sources, and playbooks without those that hold for too few others.

A rule that was written for one incident says nothing of how the next is judged. Without every rule that holds for no
other source, an incident is judged as if it had never been seen: what comes out so is near to first runs on fresh sets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...agent.core.playbook import Playbook
from ...agent.verdict.predicates import Facts, judge
from ...agent.verdict.traits import is_hit
from .gathered import Gathered

Rule = tuple[str, str, int]  # slug of the playbook, part of it, number
PARTS = ("signatures", "requires", "any_of", "supports", "contradicts")


def holding(playbooks: Iterable[Playbook], facts: Facts) -> Iterator[Rule]:
    """The rules that hold under this evidence."""
    for book in playbooks:
        hits = facts.get(book.key)
        yield from ((book.slug, PARTS[0], n) for n, s in enumerate(book.signatures) if any(is_hit(s, e) for e in hits))
        for part in PARTS[1:]:
            for n, predicate in enumerate(getattr(book, part)):
                if judge(predicate, facts).state == "true":
                    yield book.slug, part, n


def sources_of_rules(gathered: Iterable[Gathered], playbooks: Sequence[Playbook]) -> dict[Rule, set[str]]:
    """Of each rule that holds anywhere, the sources it holds for. Transplants are no sources of their own."""
    found: dict[Rule, set[str]] = defaultdict(set)
    for g in gathered:
        if not g.of.planted:
            for rule in holding(playbooks, g.facts):
                found[rule].add(g.of.source)
    return found


def without(playbooks: Iterable[Playbook], known: Mapping[Rule, set[str]], source: str, fewest: int) -> list[Playbook]:
    """The playbooks without rules that hold for a source and for fewer than `fewest` others.

    Rules that hold for nothing that is known stay: they hold here neither.
    """
    return [_without(book, known, source, fewest) for book in playbooks]


def _without(book: Playbook, known: Mapping[Rule, set[str]], source: str, fewest: int) -> Playbook:
    changed = {}
    for part in PARTS:
        rules = getattr(book, part)
        kept = [
            r for n, r in enumerate(rules)
            if source not in (seen := known.get((book.slug, part, n), set())) or len(seen - {source}) >= fewest
        ]  # fmt: skip
        if len(kept) < len(rules):
            changed[part] = kept
    return book.model_copy(update=changed) if changed else book
