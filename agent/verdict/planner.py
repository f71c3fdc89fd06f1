"""A planner names the next calls, or gives the diagnosis. The offline one is pure and deterministic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..core.playbook import Playbook
from ..core.report import Sentence
from ..core.types import Call, Evidence, Hypothesis, Risk
from ..tools.tool import all_tools
from .predicates import Facts
from .ranking import rank
from .steer import Sounds

LIKELY = 0.35  # probability from which a cause of which a mechanism was seen is called likely
EVEN = 0.5  # and one that merely shows the effect
SURE = 0.85  # and one of which circumstances were; from which a whole proof is called confirmed
RIVAL = 0.05  # probability from which another cause is a rival
OUTRIGHT = 3.0  # log odds by which the words of a question as good as name a cause
_FITTING = 3  # playbooks that the question fits best, whose checks are made where no evidence leads
HEALTHY, INSUFFICIENT = "none.healthy", "none.insufficient_evidence"


@dataclass(slots=True)
class View:
    """Everything known so far, as a planner sees it."""

    question: str
    facts: Facts
    playbooks: Sequence[Playbook]
    sounds: Sounds = field(default_factory=Sounds)  # what the question and the run sound like
    done: frozenset[str] = frozenset()  # identities of the calls made
    allowed: Risk = Risk.READ
    intent: str = ""  # what is asked where it is not a diagnosis
    answered: bool = False  # this turn's calls found what answers it
    diagnosable: bool = True  # there are logs, captures or processes of a run
    attached: bool = False  # the user named processes of the run
    live: bool = False  # this machine may be looked at; told where somebody can be asked
    askable: bool = False  # somebody can be asked for what is above the allowed risk
    # what only a planner that talks needs
    turn: int = 1  # questions asked in this session, with this one
    results: Sequence[Mapping[str, Any]] = ()  # the calls made, as the session keeps them
    evidence_of: Sequence[Sequence[str]] = ()  # ids of the evidence of each of `results`
    dialogue: Sequence[Mapping[str, Any]] = ()  # what was said so far, as the planner put it in
    spent: Mapping[str, float] = field(default_factory=dict)  # of this question: `calls`, `in`, `out`, `seconds`
    rejections: Sequence[str] = ()  # what of its last diagnosis could not stand
    overview: Sequence[str] = ()  # the runs in lines: roots, files by role
    names: Collection[str] = ()  # of all files of the run
    roots: Sequence[str] = ()  # where the runs lie, good ones last; the nth is r<n>/
    texts: Callable[[], Iterable[tuple[str, str]]] = tuple  # name and text of each small file, configs first
    nearby: Callable[[Iterable[Evidence]], Iterable[str]] = lambda evidence: ()  # texts around lines of evidence
    earlier: Mapping[str, Any] | None = None  # the report on the question before


@dataclass(frozen=True, slots=True)
class ProposedEdit:
    """A change that a model proposes: exact text of one file of the run, what to put there, and the reason."""

    file: str
    find: str
    replace: str
    why: str = ""
    cites: tuple[str, ...] = ()


@dataclass(slots=True)
class Diagnosis:
    """What a planner concludes; the gate and the predicates decide what of it stands. No cause: an answer.

    `by_model` marks the words of a model: they are held against what it was shown, and the ranking is shown beside.
    """

    cause: str | None
    hypotheses: list[Hypothesis]
    sentences: list[Sentence] = field(default_factory=list)
    by_model: bool = False
    ruled_out: list[str] = field(default_factory=list)
    edits: list[ProposedEdit] = field(default_factory=list)


@dataclass(slots=True)
class Step:
    """The next calls or the diagnosis, and what the session shall remember of how they came about.

    Attributes:
        dialogue: entries to be kept, plain data; only the planner that wrote them reads them.
        spent: what the step cost: `calls`, `in`, `out` (tokens), `seconds`.
        degraded: why the planner could not go on as it should.
    """

    calls: list[Call] = field(default_factory=list)
    diagnosis: Diagnosis | None = None
    dialogue: list[dict[str, Any]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=dict)
    degraded: list[str] = field(default_factory=list)


class Planner(Protocol):
    """One method: the next calls, or the diagnosis."""

    def next(self, view: View) -> Step: ...

    def close(self) -> None:
        """Let go of what it holds open; the session is over."""


class Offline:
    """Rank, run the check that separates the leading hypotheses, stop when one stands or checks run out."""

    def close(self) -> None:
        """It holds nothing open."""

    def next(self, view: View) -> Step:
        if view.intent:
            if view.answered or not view.diagnosable:
                return Step(diagnosis=Diagnosis(None, []))
            if calls := recalled(view.allowed, view.done, attached=view.attached):
                return Step(calls)  # nothing known answers it, so it may be about the run after all
        ranked = rank(view.playbooks, view.facts, view.sounds)
        if is_settled(ranked) and (call := _separating_check(ranked[:1], view)):
            return Step([call])  # what its page asks for is cited where it is there
        if not is_settled(ranked) and (call := _separating_check(ranked, view)):
            return Step([call])
        if verdict(ranked) == INSUFFICIENT and (call := _asked_check(view, view.sounds.question, view.sounds.whole)):
            return Step([call])
        if not is_settled(ranked) and (call := _asked_check(view, _named_outright(view.sounds.question))):
            return Step([call])
        if not is_settled(ranked) and (call := _call_to_ask_for(ranked, view)):
            return Step([call])
        return Step(diagnosis=Diagnosis(verdict(ranked), ranked))


def recalled(allowed: Risk, done: frozenset[str], *, attached: bool) -> list[Call]:
    """The cheap read-only tools over everything there is, less those already run in this session (`done`).

    What attaches to a process is among them where processes were named and it may be done unasked.
    """
    order = list(Risk)
    calls = [
        Call(name, why="recall")
        for name, t in all_tools().items()
        if t.recall and (t.risk is Risk.READ or (attached and order.index(t.risk) <= order.index(allowed)))
    ]
    return [c for c in calls if c.identity not in done]


def verdict(ranked: list[Hypothesis]) -> str:
    """The cause that the evidence carries, that nothing is wrong, or that it carries none."""
    found = leader(ranked)
    return found.cause if found else INSUFFICIENT


def leader(ranked: Sequence[Hypothesis]) -> Hypothesis | None:
    """Of the causes that may be told the most probable: an origin before what follows from it, a mechanism before none.

    The less of a proof was seen of it, the more probable it must be. Words and circumstances are not believed against a
    run that went well as far as it shows, and a fault only where it is twice as probable as that all is well. That is
    told only where nothing is left that could be told instead.
    """
    blamed = any("mechanism" in h.parts and h.probability >= LIKELY for h in ranked if h.cause != HEALTHY)
    well = next((h.probability for h in ranked if h.cause == HEALTHY and h.parts), None)
    told = [h for h in ranked if _may_be_told(h, well) and not (blamed and h.cause == HEALTHY)]
    if not ranked or (ranked[0].probability >= SURE and ranked[0] not in told):
        return None
    return max(told, key=lambda h: (h.explained_by is None, "mechanism" in h.parts, h.probability), default=None)


def _may_be_told(h: Hypothesis, well: float | None) -> bool:
    """Whether a cause may be told; `well` is the probability that nothing is wrong, where that was seen at all."""
    if h.unexplained or h.elsewhere or (h.cause == HEALTHY and not h.parts):
        return False
    if not (h.seen or well is None) or not (h.positive or "effect" in h.parts):
        return False
    if h.cause != HEALTHY and h.probability < 2 * (well or 0.0):
        return False
    effect_alone = SURE if h.cause == HEALTHY else EVEN  # a good end is less than an answer to what was asked
    least = LIKELY if "mechanism" in h.parts else effect_alone if "effect" in h.parts else SURE
    return h.probability >= least


def is_settled(ranked: list[Hypothesis]) -> bool:
    """Whether the leader's proof is whole, nothing of the effect is left unexplained, and no rival's proof is whole."""
    first = leader(ranked)
    if first is None or first.probability < SURE:
        return False
    rivals = [h for h in ranked if h is not first and h.explained_by != first.cause and h.probability >= RIVAL]
    return first.cause == HEALTHY or (_is_whole(first) and not first.leaves and not any(map(_is_whole, rivals)))


def _is_whole(h: Hypothesis) -> bool:
    return {"effect", "mechanism", "link"} <= set(h.parts)


def _separating_check(ranked: list[Hypothesis], view: View) -> Call | None:
    """The first check not yet made that the leaders name; one that only one of them names tells most."""
    by_slug = {p.slug: p for p in view.playbooks}
    wanted: dict[str, list[str]] = {}
    for h in ranked[:3]:
        for name in by_slug[h.playbook].checks:
            wanted.setdefault(name, []).append(h.cause)
    ready = _ready(wanted, view)
    if not ready:
        return None
    _, name, for_causes = min(ready)
    return Call(name, why=f"tells {' and '.join(for_causes)} apart" if len(ranked) > 1 else f"tests {for_causes[0]}")


def _named_outright(starts: Mapping[str, float]) -> dict[str, float]:
    """The cause that the question as good as names."""
    best = max(starts, key=lambda cause: starts[cause], default="")
    return {best: starts[best]} if best and starts[best] >= OUTRIGHT else {}


def _asked_check(view: View, *heard: Mapping[str, float]) -> Call | None:
    """Where nothing speaks for any cause, a check of the playbooks that fit the question best.

    Some failures leave no line at all: what is wrong with them lies in a checkpoint or in the data.
    """
    wanted: dict[str, list[str]] = {}
    for starts in heard:
        fitting = sorted((p for p in view.playbooks if p.cause in starts), key=lambda p: -starts[p.cause])
        for p in fitting[:_FITTING]:
            for name in p.checks:
                wanted.setdefault(name, [p.cause])
    ready = _ready(wanted, view)
    return Call(ready[0][1], why=f"the question fits {ready[0][2][0]}") if ready else None


def _call_to_ask_for(ranked: list[Hypothesis], view: View) -> Call | None:
    """What may settle it and is above the allowed risk, the gentlest first; somebody is asked before it is made."""
    if not view.askable or not (view.attached or view.live):
        return None
    order = list(Risk)
    if view.attached:
        for name, t in all_tools().items():
            above = order.index(t.risk) > order.index(view.allowed)
            if t.recall and above and Call(name).identity not in view.done:
                return Call(name, why="the files settle nothing, and you named processes: where they stand may tell")
    for risk in order[order.index(view.allowed) + 1 : order.index(Risk.COSTLY) + 1]:
        wider = replace(view, allowed=risk)
        open_question = verdict(ranked) == INSUFFICIENT
        call = _asked_check(wider, wider.sounds.whole) if open_question else _separating_check(ranked, wider)
        if call:
            return Call(call.tool, why=f"{call.why}, and nothing that may be made unasked settles it")
    return None


def _ready(wanted: dict[str, list[str]], view: View) -> list[tuple[int, str, list[str]]]:
    """Of the checks that causes name, those that may be made and were not: how many causes, the tool, the causes."""
    tools, order = all_tools(), list(Risk)
    return [
        (len(for_causes), name, for_causes)
        for name, for_causes in wanted.items()
        if name in tools
        and order.index(tools[name].risk) <= order.index(view.allowed)
        and Call(name).identity not in view.done
        and not any(p.is_required() for p in tools[name].arguments.model_fields.values())
    ]
