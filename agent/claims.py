"""What a model claims, held against what it was shown: the gate for its words, a vote for its verdict.

A model sees text with secrets taken out and control tokens broken, so its quotations are compared in that form. Its
verdict adds a vote to the ranking; it never makes a status, which predicates alone decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from . import gate
from .hypotheses import with_vote
from .llm.fence import harmless
from .planner import HEALTHY, INSUFFICIENT, LIKELY, Diagnosis, is_settled, verdict
from .playbook import Playbook
from .predicates import Facts
from .redact import Redactor
from .report import CitedEvidence, Ranked, Report, RootCause, Sentence, Status
from .types import Evidence, Hypothesis

VOTE = 4.0  # log odds for a cause that a model names with at least one sentence on evidence that stands
ABSTAINS = 1.0  # log odds for none of the causes, where a model finds too little to tell
_NUMBERED = re.compile(r"(<SECRET:[a-z_]+):\d+>")


def as_shown(text: str, redactor: Redactor) -> str:
    """Text as a model was shown it, with the numbers of taken-out secrets left away."""
    return _NUMBERED.sub(r"\1>", harmless(redactor.redact(text)))


def through_gate(
    sentences: Iterable[Sentence],
    evidence: Mapping[str, Evidence],
    known: Sequence[str],
    documents: Iterable[str] = (),
) -> tuple[list[Sentence], list[str]]:
    """The sentences of a model that may stand, and what is wrong with each of the others, in its own words."""
    redactor, apart, kept, dropped = Redactor(), frozenset(documents), [], []
    for s in sentences:
        cited = {
            i: e.with_(text=f"{e.text}\n{as_shown(e.text, redactor)}", value=_shown_value(e, redactor))
            for i in s.cites if (e := evidence.get(i)) is not None
        }  # fmt: skip
        asked = s.model_copy(update={"text": _NUMBERED.sub(r"\1>", s.text)})
        if reasons := gate.faults(asked, cited, known, apart):
            dropped.append(f"{s.text[:160]!r} {'; it '.join(reasons[:3])}")
        else:
            kept.append(s)
    return kept, dropped


def _shown_value(e: Evidence, redactor: Redactor) -> object:
    return f"{e.value}\n{as_shown(e.value, redactor)}" if isinstance(e.value, str) else e.value


def objections(diagnosis: Diagnosis, causes: Mapping[str, str]) -> list[str]:
    """Why a model's verdict goes back to it once: no such cause, or predicates that confirm another one."""
    if diagnosis.cause is not None and diagnosis.cause not in causes:
        return [f"{diagnosis.cause!r} is no cause of the vocabulary"]
    ranked = diagnosis.hypotheses
    if diagnosis.cause is None or not is_settled(ranked):
        return []
    if ranked[0].cause in (diagnosis.cause, *diagnosis.ruled_out):
        return []
    held = ", ".join(ranked[0].supported_by[:6])
    return [f"{ranked[0].cause} is confirmed by its predicates ({held}): say on which evidence it is wrong, or name it"]


def settled_cause(diagnosis: Diagnosis, causes: Mapping[str, str]) -> str:
    """The cause to report: the model's where the vocabulary has it, otherwise what the evidence carries."""
    if diagnosis.cause in causes:
        return str(diagnosis.cause)
    return verdict(diagnosis.hypotheses) if diagnosis.by_model else INSUFFICIENT


def stands(
    cause: str, ranked: list[Hypothesis], kept: Sequence[Sentence], evidence: Mapping[str, Evidence]
) -> bool:  # fmt: skip
    """Whether anything bears a model's verdict: a sentence of its own on evidence, or something positive we found."""
    if cause == INSUFFICIENT or any(i in evidence for s in kept for i in s.cites):
        return True
    return any(h.cause == cause and h.positive for h in ranked)


def voted(
    cause: str, ranked: list[Hypothesis], kept: Sequence[Sentence], evidence: Mapping[str, Evidence],
    page: Playbook | None,
) -> list[Hypothesis]:  # fmt: skip
    """The ranking with the model's vote, which counts only where a sentence of its own stands on evidence."""
    stands = any(i in evidence for s in kept for i in s.cites)
    if cause == INSUFFICIENT:
        return with_vote(ranked, cause, ABSTAINS, None)
    return with_vote(ranked, cause, VOTE if stands else 0.0, page)


def ranking(ranked: list[Hypothesis]) -> Ranked:
    """The verdict of the evidence alone, as it stands beside a model's."""
    cause = verdict(ranked)
    leader = next((h for h in ranked if h.cause == cause), None)
    return Ranked(id=cause, confidence=round(leader.probability, 4) if leader else 0.0, status=status(cause, ranked))


def status(cause: str, ranked: list[Hypothesis]) -> Status:
    """The status of a cause by the ranking of evidence alone: a model's vote moves no status."""
    leader = next((h for h in ranked if h.cause == cause), None)
    if cause == HEALTHY:
        return "healthy" if verdict(ranked) == HEALTHY else "hypothesis"
    if cause == INSUFFICIENT:
        return "insufficient_evidence"
    if leader is None or not leader.positive:
        return "hypothesis"
    if leader is ranked[0] and is_settled(ranked):
        return "confirmed"
    return "likely" if leader.probability >= LIKELY else "hypothesis"


def answered(diagnosis: Diagnosis, facts: Facts, known: Sequence[str]) -> tuple[Report | None, list[str]]:
    """The report for a question that asks for no diagnosis, of the sentences that stand; None when none does."""
    evidence = {e.id: e for found in facts.by_key.values() for e in found}
    kept, dropped = through_gate(diagnosis.sentences, evidence, known)
    if not any(s.cites for s in kept):
        return None, dropped or ["no sentence of the answer cites evidence"]
    report = Report(status="answer", root_cause=RootCause(id=None, confidence=0.0), summary=kept)
    report.meta.planner = "llm"
    ids = dict.fromkeys(i for s in kept for i in s.cites)
    report.evidence = [CitedEvidence(**asdict(evidence[i])) for i in ids if i in evidence]
    return report, dropped
