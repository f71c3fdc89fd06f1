"""From a planner's diagnosis to the report: status by predicates, sentences through the gate, fixes in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...index.search import Result, bound, search
from ..core.playbook import Playbook, playbooks
from ..core.report import AlsoFound, ChainLink, CitedEvidence, Differential, FirstFailure, Report, RootCause, Sentence
from ..core.types import Evidence, Hypothesis
from ..reading.run.workspace import STDIN, Workspace
from ..repair.operations import Scene, filled, operations
from ..repair.restart import advise, complete, proof_of
from ..repair.treatment.treat import treat
from ..repair.treatment.treatment_words import fitting, in_words
from ..tools.tool import all_tools, survived
from ..verdict import gate, salience
from ..verdict.planner import HEALTHY, INSUFFICIENT, Diagnosis, verdict
from ..verdict.predicates import Facts
from ..verdict.ranking import ended_by_exception
from .history.team import Team

# ----------
# Where a run broke first: rank, host, step and time, from the lines that prove the verdict and what tells of ranks.


# levels and trends: they bear a verdict out, and are no place where anything broke
_LEVELS = frozenset(
    {"loss.decreasing", "loss.initial_value", "loss.final_value", "loss.few_steps", "loss.nan_flat_before"}
)
_LEFT_BEHIND = ("flight.culprit", "flight.rank_behind", "stack.rank_odd_one_out")
_ENDS = ("error.first", "error.message", "error.signal", "watchdog.timeout", *_LEFT_BEHIND)


def first_failure(proof: list[Evidence], facts: Facts) -> FirstFailure:
    """Rank, host, step and time of what broke first; what nothing tells is None.

    A line that proves the verdict comes before the first exception: that one may be a peer that only noticed. A step is
    the one of that place, else, where the run broke off, the last that the rank is known to have reached.
    """
    fell_silent = facts.get("rank.silent_while_others_fail")
    gone = next((e for e in facts.get("job.died_first") if e.rank is not None), None)
    if gone is not None and not facts.get("error.first") and not any(e.key.startswith("loss.") for e in proof):
        # nobody raised anything: what the supervisor saw go first broke first, whoever complains in the logs
        return FirstFailure(rank=gone.rank, host=gone.host, step=gone.step, time=gone.time, attempt=gone.attempt)
    seen = [*facts.get("error.first"), *facts.get("loss.first_nan_step"), *facts.get("watchdog.timeout")]
    proof = [e for e in proof if e.key not in _LEVELS]
    first = {(e.file, e.line): e for e in reversed(facts.get("error.first"))}
    placed = [e for e in proof if (e.file, e.line) in first]
    if not placed:
        placed = [e for e in [*proof, *fell_silent] if e.rank is not None or e.host] or seen or _one_rank(facts)
    if not placed:
        return FirstFailure()
    e = _earliest(placed)
    same_line = first.get((e.file, e.line), e)
    named = same_line.rank if same_line.rank is not None else e.rank
    rank = named if named is not None else next((x.rank for x in fell_silent if x.rank is not None), None)
    step = next((x.step for x in [e, *seen] if x.step is not None), None)
    time = e.time or next((x.time for x in proof if x.time), None)
    return FirstFailure(
        rank=rank, host=e.host, step=step if step is not None else _reached(rank, facts), time=time, attempt=e.attempt
    )


def _one_rank(facts: Facts) -> list[Evidence]:
    """The one rank that was left behind, else the one whose process the launcher saw end first."""
    for found in ([e for key in _LEFT_BEHIND for e in facts.get(key)], facts.get("error.message")):
        ranked = [e for e in found if e.rank is not None]
        if len({e.rank for e in ranked}) == 1:
            return ranked[:1]
    return []


def _reached(rank: int | None, facts: Facts) -> int | None:
    """The last step of the rank that broke; where no rank is named, of the run, if one process alone tells steps."""
    if not any(facts.get(key) for key in _ENDS):
        return None
    last = [e for e in facts.get("rank.last_seen_step") if e.step is not None]
    if rank is not None and any(e.rank is not None for e in last):
        last = [e for e in last if e.rank == rank]
    return last[0].step if len(last) == 1 else None


def _earliest(placed: list[Evidence]) -> Evidence:
    """The first of them where that can be told: within one file by line, of many ranks by step, else as weighed."""
    if all(e.file == placed[0].file and e.line for e in placed):
        return min(placed, key=lambda e: e.line or 0)
    alike = [e for e in placed if e.key == placed[0].key and e.step is not None]
    return min(alike, key=lambda e: e.step or 0) if placed[0].step is not None else placed[0]


# ----------

ALSO_SCORE = 1.5  # log odds from which an independent second finding is worth a line
WHOLE = {"effect", "mechanism", "link"}  # a proof with nothing missing
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
    cause, ranked = gate.settled_cause(diagnosis, causes), diagnosis.hypotheses
    said, wrong = [], []
    if diagnosis.by_model:
        apart = [e.id for found in facts.by_key.values() for e in found if e.kind == "document"]
        titles = [p.title for p in playbooks if p.cause == cause]
        known = sorted([*titles, causes[cause], *causes, *all_tools()], key=len, reverse=True)
        said, wrong = gate.through_gate(diagnosis.sentences, evidence, known, apart)
        if not gate.stands(cause, ranked, said, evidence):
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
        dropped, objections = wrong, gate.objections(diagnosis, causes)
        weighed = gate.voted(cause, ranked, said, evidence, playbook) if said else ranked
        cited = {i: None for s in said for i in s.cites if i in evidence}
        proof = proof or [evidence[i] for i in cited][:6]
        ours = [s for s in kept[bool(said) :] if not set(s.cites) <= set(cited)]
        kept = [*said, *ours]  # its words in place of our lead; the lines it did not cite stay
        leader = next((h for h in weighed if h.cause == cause), None)
    if leader and leader.leaves:
        left = f"This does not explain what was asked about: {' and '.join(leader.leaves)}."
        kept.insert(1, Sentence(text=left, cites=[]))
    status = gate.status(cause, ranked)
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
        report.meta.planner, report.meta.ranking = "llm", gate.ranking(ranked)
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
        lead = Sentence(text=f"{NO_CAUSE}{_ended_by(facts)}.", cites=[e.id for e in context[:4]])
    told = [*proof, *salience.beside(cause, facts), *context, *(salience.telling(facts) if telling else [])]
    return [lead, *salience.listing(told, 32)]


NO_CAUSE = "The material does not identify a cause"


def _ended_by(facts: Facts) -> str:
    """The exception that ended the run, where that is all there is to tell."""
    if not ended_by_exception(facts):
        return ""
    line = salience.quote(facts.get("error.first")[0].text)
    return f": it ended by {line}, and no failure that is known explains that"


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
        and {*h.parts} >= WHOLE and h.score >= ALSO_SCORE
        and h.cause not in explains and not h.explained_by and leader.cause not in by_slug[h.playbook].explains
    ][:3]  # fmt: skip


def _chain(proof: list[Evidence], facts: Facts) -> list[ChainLink]:
    links: dict[str, ChainLink] = {}

    def add(found: list[Evidence], role: str, most: int) -> None:
        for e in found[:most]:
            links.setdefault(
                e.id, ChainLink.model_validate({"evidence": e.id, "role": role, "text": salience.sentence(e).text})
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


# ----------
# What is added to a verdict that stands: starting again, what came before, patches, commands with this run's names.

SECONDS = 30.0  # for each of them


def aftercare(report: Report, facts: Facts, ws: Workspace, team: Team, session: str) -> list[str]:
    """Complete a report. Returns what to tell where a part failed: none of it may cost the verdict."""
    told = [
        survived("restart advice", lambda: complete(report, facts, ws), SECONDS),
        survived("look into the history", lambda: team.recall(report, facts, ws), SECONDS),
        survived("patches", lambda: treat(report, playbooks(), ws, facts), SECONDS),
        survived("names in commands", lambda: _name(report, facts, ws, session), SECONDS),
    ]
    return [why for why in told if why]


def _name(report: Report, facts: Facts, ws: Workspace, session: str) -> None:
    """Commands with the names and paths of this run, and what follows from the evidence beside the playbook."""
    again = report.restart
    found = enumerate([*ws.roots, *ws.good], 1)
    roots = {f"r{n}": str(root if root == STDIN else root.absolute()) for n, root in found}
    nodes = again.exclude if again and again.advice == "restart_excluding" else None
    scene, proof = Scene(roots, nodes, session), proof_of(report, facts)
    fixes = [filled(fix, proof, facts, scene) for fix in report.fixes]
    said = [c for fix in fixes for c in fix.commands]
    report.fixes = [*fixes, *operations(report.root_cause.id or "", proof, facts, scene, said)]


# ----------
# Sections of playbooks and of the user's own documents that bear on a verdict, named by document and heading.

SHOWN = 3


def passages(question: str, title: str, cause: str, *, settled: bool, notes: list[str]) -> list[str]:
    """What to read next, one line each, the user's own documents before ours.

    Words alone are compared where the evidence settled the matter; only an open question is worth the time that
    the vector index takes to load. A document that is bound to a cause is named for that cause alone, and always.
    """
    found = search(f"{title}. {question}"[:800], k=8, by="words" if settled else "both")
    if found.degraded and not settled:
        notes.append(f"index: {found.degraded}")
    own = [*bound(cause), *(r for r in found if r.kind == "document" and r.cause in (None, cause))]
    ours = [r for r in found if r.kind != "document" and (r.cause == cause or not settled)]
    chosen: dict[tuple[str, ...], Result] = {}
    for r in [*own, *ours]:
        chosen.setdefault((r.document, *(r.headings if r.kind == "document" else ())), r)
    return [f"Read: {_passage_name(r)}" for r in list(chosen.values())[:SHOWN]]


def _passage_name(r: Result) -> str:
    path = " > ".join(r.headings)
    if r.kind == "document":
        return f"{Path(r.document).name} > {path}" if path else Path(r.document).name
    return f"playbook {r.document} > {path} (doctor playbook show {r.document})" if path else r.document
