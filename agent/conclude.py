"""From a planner's diagnosis to the report: status by predicates, sentences through the gate, fixes in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from . import claims, gate, salience, wording
from .first_failure import first_failure
from .planner import HEALTHY, INSUFFICIENT, Diagnosis, verdict
from .playbook import Playbook
from .predicates import Facts
from .report import (
    AlsoFound,
    ChainLink,
    CitedEvidence,
    Differential,
    FirstFailure,
    Report,
    RootCause,
    Sentence,
)  # fmt: skip
from .restart import advise
from .tool import all_tools
from .treatment.words import fitting, in_words
from .types import Evidence, Hypothesis

ALSO_SCORE = 1.5  # log odds from which an independent second finding is worth a line
DIFFERENTIAL = 6


@dataclass(slots=True)
class Concluded:
    """The judged part of a report, what the gate dropped, and what speaks against a model's verdict as a whole."""

    report: Report
    dropped: list[str] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)  # to the verdict itself


def conclude(diagnosis: Diagnosis, facts: Facts, playbooks: Sequence[Playbook], causes: dict[str, str]) -> Concluded:
    """Judge a diagnosis and write the report around what stands."""
    # what a playbook or document says bears out an answer, never what happened in a run
    evidence = {e.id: e for found in facts.by_key.values() for e in found if e.kind != "document"}
    by_slug = {p.slug: p for p in playbooks}
    cause, ranked = claims.settled_cause(diagnosis, causes), diagnosis.hypotheses
    said, wrong = [], []
    if diagnosis.by_model:
        apart = [e.id for found in facts.by_key.values() for e in found if e.kind == "document"]
        titles = [p.title for p in playbooks if p.cause == cause]
        known = sorted([*titles, causes[cause], *causes, *all_tools()], key=len, reverse=True)
        said, wrong = claims.through_gate(diagnosis.sentences, evidence, known, apart)
        if not claims.stands(cause, ranked, said, evidence):
            wrong.append(f"{cause}, as no sentence about it stands on evidence")
            cause, said = verdict(ranked), []
    leader = next((h for h in ranked if h.cause == cause), None)
    playbook = by_slug.get(leader.playbook) if leader else _page(cause, playbooks)
    title = (playbook.title if playbook else "") or causes[cause]
    proof = salience.decisive(leader, facts)
    vocabulary = sorted([title, causes[cause], *causes], key=len, reverse=True)
    written = [] if diagnosis.by_model else diagnosis.sentences
    written = written or _sentences(cause, title, causes[cause], proof, facts, telling=not diagnosis.by_model)
    kept, dropped = _through_gate(written, evidence, vocabulary)
    weighed, objections = ranked, []
    if diagnosis.by_model:
        dropped, objections = wrong, claims.objections(diagnosis, causes)
        weighed = claims.voted(cause, ranked, said, evidence, playbook) if said else ranked
        cited = {i: None for s in said for i in s.cites if i in evidence}
        proof = proof or [evidence[i] for i in cited][:6]
        ours = [s for s in kept[bool(said) :] if not set(s.cites) <= set(cited)]
        kept = [*said, *ours]  # its words in place of our lead; the lines it did not cite stay
        leader = next((h for h in weighed if h.cause == cause), None)
    status = claims.status(cause, ranked)
    differential = _differential(cause, title, weighed)
    report = Report(
        status=status,
        root_cause=RootCause(
            id=cause, title=title, playbook=playbook.slug if playbook else None,
            confidence=differential[0].confidence,
            first_failure=FirstFailure() if cause == HEALTHY else first_failure(proof, facts),
        ),
        also=_also(leader, ranked, by_slug, diagnosis.ruled_out),
        summary=kept,
        differential=differential,
        chain=_chain(proof, facts),
        fixes=[in_words(f, facts) for f in playbook.fixes if fitting(f, facts)] if playbook else [],
        next_steps=_next_steps(cause, playbook, ranked, by_slug, facts),
    )  # fmt: skip
    if diagnosis.by_model and cause == diagnosis.cause:  # otherwise the evidence alone gave the verdict
        report.meta.planner, report.meta.ranking = "llm", claims.ranking(ranked)
    report.restart = advise(cause, proof, facts, report.root_cause.first_failure.step)
    report.evidence = _cited(report, evidence)
    return Concluded(report, dropped, objections)


def _page(cause: str, playbooks: Sequence[Playbook]) -> Playbook | None:
    return next((p for p in playbooks if p.cause == cause), None)


def _sentences(
    cause: str, title: str, meaning: str, proof: list[Evidence], facts: Facts, *, telling: bool
) -> list[Sentence]:
    """The verdict and the lines beside it; those that merely share words with the question where `telling` is set."""
    context = salience.context(facts)
    shown = proof or context
    lead = Sentence(text=f"{title or meaning}.", cites=[e.id for e in shown[:6]])
    if cause == INSUFFICIENT:
        lead = Sentence(text="The material does not identify a cause.", cites=[e.id for e in context[:4]])
    told = [*proof, *salience.beside(cause, facts), *context, *(salience.telling(facts) if telling else [])]
    return [lead, *wording.listing(told, 32)]


def _through_gate(
    sentences: list[Sentence], evidence: dict[str, Evidence], vocabulary: list[str]
) -> tuple[list[Sentence], list[str]]:
    kept, dropped = [], []
    for s in sentences:
        if reasons := gate.faults(s, evidence, vocabulary):
            dropped.append(f"dropped a sentence that {reasons[0]}")
        else:
            kept.append(s)
    return kept, dropped


def _differential(cause: str, title: str, ranked: list[Hypothesis]) -> list[Differential]:
    rest = 1.0 - sum(h.probability for h in ranked)
    rows = [
        Differential(
            id=h.cause, title=h.title, confidence=round(h.probability, 4), supported_by=h.supported_by[:12],
            contradicted_by=h.contradicted_by[:6], missing=h.missing[:6],
        )
        for h in ranked[:DIFFERENTIAL]
    ]  # fmt: skip
    first = next((r for r in rows if r.id == cause), None)
    if first is None:
        first = Differential(id=cause, title=title, confidence=round(max(0.0, rest), 4))
    return [first, *(r for r in rows if r is not first)]


def _also(
    leader: Hypothesis | None, ranked: list[Hypothesis], by_slug: dict[str, Playbook], ruled_out: Sequence[str]
) -> list[AlsoFound]:
    """Independent findings: another family, everything required held, neither explains the other."""
    if leader is None:
        return []
    explains = by_slug[leader.playbook].explains
    family = leader.cause.split(".")[0]
    return [
        AlsoFound(id=h.cause, confidence=round(min(0.99, h.probability + 0.5), 4), cites=h.supported_by[:6])
        for h in ranked
        if h.cause not in (leader.cause, *ruled_out) and h.cause.split(".")[0] not in (family, "none")
        and h.required and h.score >= ALSO_SCORE
        and h.cause not in explains and not h.explained_by and leader.cause not in by_slug[h.playbook].explains
    ][:3]  # fmt: skip


def _chain(proof: list[Evidence], facts: Facts) -> list[ChainLink]:
    links: dict[str, ChainLink] = {}

    def add(found: list[Evidence], role: str, most: int) -> None:
        for e in found[:most]:
            links.setdefault(
                e.id, ChainLink.model_validate({"evidence": e.id, "role": role, "text": wording.sentence(e).text})
            )

    add(proof, "cause", 3)
    add(facts.get("error.first"), "symptom", 1)
    add(salience.cascade(facts), "cascade", 4)
    return list(links.values())


def _next_steps(
    cause: str, playbook: Playbook | None, ranked: list[Hypothesis], by_slug: dict[str, Playbook], facts: Facts
) -> list[str]:
    steps = list(playbook.next_steps) if playbook else []
    if cause == INSUFFICIENT:
        odd = [e for e in facts.get("stack.rank_odd_one_out") if e.kind != "absent"][:2]
        steps[:0] = [f"See what rank {e.value} does while the others wait for it: {e.text.strip()}" for e in odd]
        for h in ranked[:3]:
            steps += by_slug[h.playbook].next_steps[:2]
            if h.missing:
                steps.append(f"To test {h.cause}: {'; '.join(h.missing[:3])}")
    return list(dict.fromkeys(steps))[:10]


def _cited(report: Report, evidence: dict[str, Evidence]) -> list[CitedEvidence]:
    ids = [i for s in report.summary for i in s.cites]
    ids += [link.evidence for link in report.chain]
    ids += [i for a in report.also for i in a.cites]
    ids += [i for d in report.differential for i in (*d.supported_by, *d.contradicted_by)]
    order = sorted({i for i in ids if i in evidence}, key=lambda i: int(i[1:]))
    return [CitedEvidence(**asdict(evidence[i])) for i in order]
