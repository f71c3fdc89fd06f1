"""What speaks for one playbook and what against it: counts that the ranking weighs, and the parts of a proof.

traits = traits_of(playbook, facts, scope)
traits.counts["line"], traits.proof.mechanism

A proof has three parts. *Effect*: what failed or is complained of. *Mechanism*: a fact that brings it about. *Link*:
that this one brought that one about here: one line tells both, the arithmetic comes out, all that the page requires
holds, the other variant is without it. A hazard, which sound code has too, is a mechanism only beside an effect; a
circumstance never is. `knowledge/parts.yaml` says which keys can be which, a predicate may say otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from ..core.own_files import KNOWLEDGE, read_table
from ..core.playbook import Part, Playbook, Predicate, Signature
from ..core.types import Evidence
from .predicates import Facts, Judgement, judge

STRENGTH = {"weak": 0.5, "normal": 1.0, "strong": 2.0}  # of a predicate that supports or contradicts
ASKED = "question."
LINES, MISSING = 4, 3  # lines of a signature that are cited; open signs that are named


@cache
def _parts() -> tuple[tuple[Part, tuple[str, ...]], ...]:
    return tuple((name, tuple(keys)) for name, keys in read_table(KNOWLEDGE / "parts.yaml").items())


@cache
def part_of(key: str) -> Part:
    """Which part of a proof an observation of a key can be."""
    for name, keys in _parts():
        if key.startswith(keys):
            return name
    return "mechanism"


@dataclass(slots=True)
class Proof:
    """Ids of the evidence by the part that it is."""

    effect: list[str] = field(default_factory=list)
    mechanism: list[str] = field(default_factory=list)
    hazard: list[str] = field(default_factory=list)
    link: list[str] = field(default_factory=list)
    circumstance: list[str] = field(default_factory=list)
    ordinary: list[str] = field(default_factory=list)
    asked: bool = False  # the question complains of what the cause brings about

    def add(self, part: Part, ids: Iterable[str]) -> None:
        getattr(self, part).extend(ids)

    @property
    def seen(self) -> bool:
        """Whether the run shows more of it than circumstances."""
        return bool(self.effect or self.mechanism or self.hazard or self.link or self.ordinary)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts that are there; a complaint is an effect that was seen by a person."""
        effect = bool(self.effect or self.asked)
        mechanism = bool(self.mechanism or (self.hazard and effect))
        there = {"effect": effect or mechanism, "mechanism": mechanism, "link": bool(self.link) and bool(self.effect)}
        return tuple(name for name in ("effect", "mechanism", "link") if there[name])


@dataclass(frozen=True, slots=True)
class Scope:
    """What of the evidence is about the failure that is to be explained.

    Attributes:
        aside: whether a line belongs to an attempt that is not the one to explain; None where all do.
        failed: names of the variant that failed, where exactly one did.
        broke: file and line of the first exception.
    """

    aside: Callable[[Evidence], bool] | None
    failed: frozenset[str | None]
    broke: frozenset[tuple[str | None, int | None]]
    by_id: Mapping[str, Evidence]

    def is_away(self, ids: Iterable[str]) -> bool:
        """Whether all of it is about another attempt or another variant than the one that failed."""
        told = [e for i in ids if (e := self.by_id.get(i))]
        seen = [e for e in told if e.line and part_of(e.key) not in ("circumstance", "hazard")]
        if self.aside and seen and all(map(self.aside, seen)):
            return True
        variants = {e.variant for e in told}
        return bool(self.failed) and bool(variants) and not variants & {None, *self.failed}


@dataclass(slots=True)
class Traits:
    """What was found of one playbook.

    Attributes:
        counts: by the names of `knowledge/weights.yaml`, what the ranking weighs.
        positive: something of it was seen.
        proven: a line or sign that its page asks for was seen, or all that it requires holds.
    """

    playbook: Playbook
    counts: dict[str, float] = field(default_factory=dict)
    supported: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    proof: Proof = field(default_factory=Proof)
    positive: bool = False
    refuted: bool = False  # something that it requires is known not to hold
    away: bool = False

    @property
    def proven(self) -> bool:
        return bool(self.counts.get("proven"))

    def count(self, name: str, much: float = 1.0) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + much

    def hold(self, predicate: Predicate, found: Judgement, by_id: Mapping[str, Evidence]) -> None:
        """A predicate holds: what it stands on belongs to the proof."""
        if predicate.key.startswith(ASKED):
            self.proof.asked = True
            return
        self.positive = True
        self.supported += found.ids
        for i in found.ids:
            if e := by_id.get(i):
                self.proof.add(predicate.part or part_of(e.key), [i])
                if predicate.part == "link":  # the page says that it tells both what happened and why
                    self.proof.add("effect", [i])
                    self.proof.add("mechanism", [i])
        if predicate.than:
            self.proof.link += found.ids


def traits_of(playbook: Playbook, facts: Facts, scope: Scope) -> Traits:
    """What speaks for a playbook, and what against it."""
    found = Traits(playbook)
    best = _lines(found, facts, scope)
    held = _required(found, facts, scope)
    lacking = bool(found.missing) or found.refuted  # of what is required
    signs = _signs(found, facts, scope, best)
    seen = None if lacking else signs
    if held or seen or (best is not None and (best.decisive or best.weight == "strong")):
        found.count("proven")
    if seen == "mechanism":
        found.count("shown")
    for predicate in playbook.supports:
        if (judged := judge(predicate, facts)).state == "true":
            found.count("asked" if predicate.key.startswith(ASKED) else "support", STRENGTH[predicate.weight])
            found.hold(predicate, judged, scope.by_id)
    for predicate in playbook.contradicts:
        if (judged := judge(predicate, facts)).state == "true":
            asked = predicate.key.startswith(ASKED)
            found.count("against_asked" if asked else "against", STRENGTH[predicate.weight])
            found.contradicted += judged.ids
    if playbook.general:
        found.count("general")
    if held and (found.proof.mechanism or found.proof.effect):
        found.proof.link += found.proof.mechanism or found.proof.effect
    if found.missing and not (best is not None and best.decisive):
        found.proof.link.clear()  # what its page asks for could still tell
    found.count("measured", float(found.proven and any(_is_measured(i, scope) for i in found.proof.mechanism)))
    found.away = scope.is_away(found.supported)
    found.count("away", float(found.away))
    return found


def _is_measured(name: str, scope: Scope) -> bool:
    """Whether a piece of evidence was read from a binary file or answered by the machine: no log says so much.

    An estimate of ours is computed.
    """
    e = scope.by_id.get(name)
    return e is not None and e.kind in ("binary", "command") and not e.key.startswith("estimate.")


def _lines(found: Traits, facts: Facts, scope: Scope) -> Signature | None:
    """Count the signatures that were hit; the strongest of them. A line that says next to nothing is no sign."""
    hits = facts.get(found.playbook.key)
    told = {n: s for n, s in enumerate(found.playbook.signatures) if any(is_hit(s, e) for e in hits)}
    if not told:
        return None
    found.positive = True
    found.supported += [e.id for e in hits[:LINES]]
    best = max(told.values(), key=lambda s: (s.decisive, STRENGTH[s.weight]))
    there = [e for e in hits if (e.file, e.line) in scope.broke and any(is_hit(s, e) for s in told.values())]
    if there:
        found.count("broke_there")
    if best.decisive or best.weight != "weak":
        found.count("line")
        ids = [e.id for e in hits[:LINES]]
        found.proof.add("effect", ids)
        found.proof.add("mechanism", ids)
        if best.decisive or there:
            found.proof.add("link", [e.id for e in there] or ids)
    return best


def is_hit(signature: Signature, e: Evidence) -> bool:
    """Whether a line that some signature of the playbook hit is of this one, and speaks for the playbook."""
    return not signature.harmless and bool(_pattern(signature.pattern).search(e.text))


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """Signatures are written for the stripped body; the evidence shows the whole line, so anchors are let go."""
    return re.compile(pattern.removeprefix("^"))


def _required(found: Traits, facts: Facts, scope: Scope) -> bool:
    """Whether something is required and all of it holds."""
    states = []
    for predicate in found.playbook.requires:
        judged = judge(predicate, facts)
        states.append(judged.state)
        if judged.state == "true":
            found.hold(predicate, judged, scope.by_id)
        elif judged.state == "missing":
            found.missing.append(describe(predicate))
        else:
            found.count("refuted")
            found.contradicted += judged.ids
            found.refuted = True
    return bool(states) and all(s == "true" for s in states)


def _signs(found: Traits, facts: Facts, scope: Scope, best: Signature | None) -> Part | None:
    """Which part of a proof the signs are that the page asks for and that were seen; circumstances are none."""
    seen, told = set[Part](), best is not None and (best.decisive or best.weight != "weak")
    open_signs = []
    for predicate in found.playbook.any_of:
        judged = judge(predicate, facts)
        if judged.state != "true":
            open_signs.append(predicate)
        elif predicate.key != found.playbook.key or told:  # its own line counts as the signature that it is
            found.hold(predicate, judged, scope.by_id)
            if predicate.key != found.playbook.key:
                seen.add(predicate.part or part_of(predicate.key))
    if found.playbook.any_of and len(open_signs) == len(found.playbook.any_of):
        found.missing += [describe(p) for p in open_signs[:MISSING]]
    seen -= {"circumstance", "hazard"}
    return "mechanism" if seen & {"mechanism", "link"} else next(iter(seen), None)


def describe(predicate: Predicate) -> str:
    """A predicate in words, for "what is missing"."""
    if predicate.op in ("exists", "absent"):
        return f"{predicate.key} {'seen' if predicate.op == 'exists' else 'looked for and not there'}"
    against = predicate.than if predicate.than else predicate.value
    words = {"eq": "=", "ne": "!=", "gt": ">", "lt": "<", "matches": "matching"}
    return f"{predicate.key} {words.get(predicate.op, predicate.op)} {against}"


def consequences(found: Iterable[Traits]) -> Iterator[tuple[Traits, Traits]]:
    """Pairs of a cause that another one brings about, of which more than circumstances was seen, and that other one."""
    known = list(found)
    for upstream in known:
        if not upstream.proven or upstream.away or upstream.refuted or not upstream.proof.mechanism:
            continue
        for t in known:
            cause = t.playbook.cause
            if cause in upstream.playbook.explains and cause != upstream.playbook.cause:
                yield t, upstream
