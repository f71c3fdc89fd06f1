"""Ranking: playbooks against evidence. Pure; the same evidence always gives the same ranking.

A playbook collects a score on the scale of log odds (a signature line, each predicate, each contradiction), a
cause explained by a stronger one upstream steps back behind it, and a softmax with a null option ("none of
these") turns scores into probabilities that add up to less than 1.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

from ..core.own_files import KNOWLEDGE, read_table
from ..core.playbook import Playbook, Predicate, Weight
from ..core.types import Evidence, Hypothesis
from .predicates import Facts, Judgement, judge
from .steer import RAISED

# ----------
# What an end with an exception says of causes that have nothing to do with it: they cannot be why the run ended.
#
# A learning rate, a version, a difference to another run are in sound runs too. Beside an exception that nobody caught,
# such a circumstance alone is no reason; and a loss or a speed ends no process, unless the exception speaks of it or
# values were no longer finite.


NULL = -0.5  # log odds of none of these
NO_REASON = -1.0  # below what carries a verdict
CIRCUMSTANCES = ("settings.", "lint.", "env.", "compare.", "question.")
ENDS_NOTHING = ("loss", "speed", "eval")  # families of causes under which a process lives on
GOOD_END = ("run.healthy_end", "run.finished", "run.recovered", "job.exit_ok")
BEHAVIOUR = frozenset({"nan", "spike", "divergence", "not_learning", "slow", "eval_bad", "rl_bad", "generation"})
SPEAKS_OF_IT = ("sig.", "error.message")  # its own signature, or a predicate over the words of the exception
ASKED_TO_STOP = frozenset({"KeyboardInterrupt", "SystemExit"})
_NOT_FINITE = re.compile(r"nan|nonfinite|non_finite|overflow")


def ended_by_exception(facts: Facts) -> bool:
    """Whether an exception ended the run, as far as is known, and the question is not about something else."""
    if not facts.get("error.first") or any(facts.get(key) for key in GOOD_END):
        return False
    if BEHAVIOUR & {str(e.value) for e in facts.get("question.symptom")}:
        return False
    names = {str(e.value) for e in facts.get("error.exception")}
    return bool(names - ASKED_TO_STOP)


def is_no_reason(cause: str, supported: Iterable[Evidence]) -> bool:
    """Whether a cause that this evidence speaks for cannot be what raised the exception."""
    told = list(supported)
    if all(e.key.startswith(CIRCUMSTANCES) for e in told):
        return True
    of_the_host = {(e.file, e.line) for e in told if e.key.startswith("host.")}  # the machine speaks, not the run
    tied = any(
        _NOT_FINITE.search(e.key) or (e.key.startswith(SPEAKS_OF_IT) and (e.file, e.line) not in of_the_host)
        for e in told
    )
    return cause.partition(".")[0] in ENDS_NOTHING and not tied


# ----------
# What a run is known to have had none of takes causes out of question.


@cache
def _needs() -> dict[str, frozenset[str]]:
    return {name: frozenset(found) for name, found in read_table(KNOWLEDGE / "needs.yaml")["needs"].items()}


def out_of_question(facts: Facts) -> frozenset[str]:
    """Causes that presuppose something which the run is known to have had none of."""
    lacking = {str(e.value) for e in facts.get("run.lacks")}
    return frozenset().union(*(causes for name, causes in _needs().items() if name in lacking))


# ----------
# Which lines tell of an attempt that is not the one to explain.
#
# Two are set aside: attempts that failed before another one came to the end, and attempts that were started after a
# failure and never got as far as a step. What stops those (a folder or a port that the first attempt left behind) came
# of the restart; the first failure is the one to explain.

STILLBORN = "run.restart_stillborn"
ABOUT_RESTARTS = frozenset({"resume", "load"})  # who asks about these asks about the later attempt
WORDS = 80  # characters of a line by which its copy in another log is known


def set_aside(facts: Facts) -> Callable[[Evidence], bool] | None:
    """Whether a line belongs to such an attempt; None where the run has none."""
    place = _before_the_last(facts) if facts.get("run.recovered") else _after_the_first(facts)
    if place is None:
        return None
    file, line, later = place

    def beyond(e: Evidence) -> bool:
        return e.file == file and e.line is not None and (e.line > line if later else e.line <= line)

    copied = {e.text.strip()[-WORDS:] for found in facts.by_key.values() for e in found if beyond(e) and e.text.strip()}
    return lambda e: beyond(e) or (e.file != file and e.line is not None and e.text.strip()[-WORDS:] in copied)


def _before_the_last(facts: Facts) -> tuple[str | None, int, bool] | None:
    begun = [e for e in facts.get("run.restarted") if e.line is not None]
    if len({e.file for e in begun}) != 1:
        return None
    return begun[0].file, max(e.line or 0 for e in begun), False


def _after_the_first(facts: Facts) -> tuple[str | None, int, bool] | None:
    if ABOUT_RESTARTS & {str(e.value) for e in facts.get("question.symptom")}:
        return None
    begun = facts.get(STILLBORN)
    first = facts.get("error.first")
    if len(begun) != 1 or not first:
        return None
    file, line = begun[0].file, begun[0].line or 0
    known = any(e.file == file and e.line is not None and e.line <= line for e in first)
    return (file, line, True) if known else None


# ----------

BASE = -2.0
BARE_AT_MOST = 0.45  # probability of a cause of whose effect nothing was seen: below what is called likely
GENERAL = -0.8
SIGNATURE: dict[Weight, float] = {"weak": 1.0, "normal": 2.0, "strong": 3.0}
DECISIVE = 4.5
MORE_SIGNATURES = 0.5
REQUIRED, REQUIRED_UNKNOWN, REQUIRED_FALSE = 1.2, -1.5, -4.0
ANY_OF, ANY_OF_UNKNOWN, ANY_OF_FALSE = 1.0, -0.7, -2.0
SUPPORT: dict[Weight, float] = {"weak": 0.6, "normal": 1.2, "strong": 2.5}
CONTRADICTION: dict[Weight, float] = {"weak": -0.8, "normal": -2.0, "strong": -4.0}
FIRST_FAILURE = 0.8
EXPLAINED = -2.5
ELSEWHERE = -4.0
CEILING = 0.97  # no claim is surer than what some hundred labelled incidents can bear out
ASKED = "question."
SOUND = "none.healthy"
NOT_SOUND = -1.0  # below what carries a verdict: an end that was reached does not make up for a fault that stands
# What stands against a good end: log odds of a fault without its head start, and the part of them that what was seen
# gave it (two plain signs of it, or a strong one); how far below such a fault a sound run is.
FAULT, FAULT_SEEN, BESIDE_IT = 1.4, 3.4, 1.0
# What shows that a fault on the way was overcome, and the faults it takes back; none named: all that came before.
OVERCOME: dict[str, frozenset[str]] = {
    "run.recovered": frozenset(),
    "loss.nan_recovered": frozenset({"loss.first_nan_step", "grad_norm.nonfinite_step", "metrics.nan_count"}),
}
AT_THE_END = frozenset({"loss.nan_until_end"})  # nothing came after it
# what was asked for or stands around, and nothing seen; a lint that says no more than the setting it stands on
MERELY = ("settings.asked.", "question.", "env.version.", "lint.fp16_enabled", "learning_rate.peak")
STATED = (*MERELY, "settings.", "lint.")
# what a run is made of: it may bring something about, and is there in sound runs too
MADE_OF = ("settings.", "learning_rate.peak", "lint.", "code.", "env.", "compare.", "question.", "files.", "listing.")
OF_SPEED = frozenset({"slow", "speed"})  # symptoms and complaints of a question


@dataclass(slots=True)
class _Score:
    """What one playbook has collected."""

    playbook: Playbook
    value: float = BASE
    seen: float = 0.0  # the part of it that stands on what the run did
    supported: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    positive: bool = False
    proven: bool = False  # required predicates all hold (or a decisive line)
    false_required: bool = False
    signed: bool = True  # a line of its own, or one of the signs that its page asks for; else circumstances alone
    elsewhere: bool = False
    explained_by: str | None = None
    value_at_most: float = math.inf
    read: bool = False  # nothing of it was seen; the question and the run sound like it
    effect: bool = False  # what it brings about was seen, or is what the question complains of
    start: float = 0.0  # its head start: what the question and the run sound like


def rank(playbooks: Iterable[Playbook], facts: Facts, prior: Mapping[str, float] | None = None) -> list[Hypothesis]:
    """Every cause with something to say for it, best first.

    Args:
        prior: log odds per playbook slug, of how the question and the run sound (`steer.prior`).
    """
    out = out_of_question(facts)
    scores = [_score(p, facts, (prior or {}).get(p.slug, 0.0)) for p in playbooks if p.cause not in out]
    scores = [s for s in scores if s.positive or s.supported or s.read]
    keys = {e.id: e.key for found in facts.by_key.values() for e in found}
    for s in scores:
        s.effect |= any(not keys[i].startswith(MADE_OF) for i in s.supported if i in keys)
    _place(scores, facts)
    _hold_to_what_was_seen(scores, facts)
    _hold_to_the_exception(scores, facts)
    _hold_to_the_attempt(scores, facts)
    _hold_to_the_fault(scores, facts)
    _trace_to_origin(scores)
    best: dict[str, _Score] = {}
    for s in sorted(scores, key=lambda s: -s.value):
        best.setdefault(s.playbook.cause, s)
    total = math.exp(NULL) + sum(math.exp(s.value) for s in best.values())
    return [
        Hypothesis(
            cause=s.playbook.cause,
            playbook=s.playbook.slug,
            title=s.playbook.title,
            probability=min(CEILING * math.exp(s.value) / total, 1.0 if s.effect else BARE_AT_MOST),
            score=s.value,
            supported_by=_unique(s.supported),
            contradicted_by=_unique(s.contradicted),
            missing=s.missing,
            positive=s.positive,
            required=s.proven,
            explained_by=s.explained_by,
            elsewhere=s.elsewhere,
        )
        for s in best.values()
    ]


def with_vote(ranked: list[Hypothesis], cause: str, vote: float, page: Playbook | None) -> list[Hypothesis]:
    """The ranking with `vote` log odds more for a cause that a model named; best first.

    A cause that collected nothing starts where every playbook starts. None of the causes (`page` is None) raises the
    null option instead. Scores, and with them what counts as confirmed, stay what the predicates made them.
    """
    known = list(ranked)
    if page is not None and cause not in {h.cause for h in known}:
        known.append(Hypothesis(cause=cause, playbook=page.slug, title=page.title, score=BASE))
    raised = {h.cause: h.score + (vote if h.cause == cause else 0.0) for h in known}
    total = math.exp(NULL if page is not None else NULL + vote) + sum(math.exp(v) for v in raised.values())
    voted = [replace(h, probability=CEILING * math.exp(raised[h.cause]) / total) for h in known]
    return sorted(voted, key=lambda h: -h.probability)


def _score(playbook: Playbook, facts: Facts, prior: float) -> _Score:
    score = _Score(playbook, BASE + prior + (GENERAL if playbook.general else 0.0), start=prior)
    signature = _weigh_signatures(score, facts)
    _weigh_required(score, facts, signature)
    for predicate in playbook.supports:
        found = judge(predicate, facts)
        if found.state == "true":
            score.effect |= predicate.key.startswith(ASKED)
            score.value += SUPPORT[predicate.weight]
            score.seen += 0.0 if predicate.key.startswith(STATED) else SUPPORT[predicate.weight]
            if not predicate.key.startswith(ASKED):
                score.supported += found.ids
                score.positive = True
    for predicate in playbook.contradicts:
        found = judge(predicate, facts)
        if found.state == "true":
            weight = predicate.weight
            if playbook.cause == SOUND and weight == "strong":
                if _stands(predicate.key, facts):
                    score.value_at_most = NOT_SOUND
                else:
                    weight = "normal"  # it was there, and was overcome
            score.value += CONTRADICTION[weight]
            score.seen += CONTRADICTION[weight]
            score.contradicted += found.ids
            if predicate.key.startswith(ASKED) and weight != "weak":
                score.proven = False  # what is asked is another question; its words cannot be cited against it
    score.value = min(score.value, score.value_at_most)
    score.read = not score.positive and not score.supported and prior >= RAISED and playbook.cause != SOUND
    return score


def _stands(fault: str, facts: Facts) -> bool:
    """Whether a fault was not overcome later in the run. A complaint about what runs do not show is by none."""
    if fault in AT_THE_END or fault.startswith(ASKED):
        return True
    return not any(facts.get(sign) and (not faults or fault in faults) for sign, faults in OVERCOME.items())


def _weigh_signatures(score: _Score, facts: Facts) -> float:
    """Add the signatures' weight and return the strongest one; 0 where none was hit."""
    hits = facts.get(score.playbook.key)
    weights: dict[int, float] = {}
    for e in hits:
        for number, signature in enumerate(score.playbook.signatures):
            if signature.harmless or number in weights or not _pattern(signature.pattern).search(e.text):
                continue
            weights[number] = DECISIVE if signature.decisive else SIGNATURE[signature.weight]
    if not weights:
        return 0.0
    told = max(weights.values()) + min(MORE_SIGNATURES * (len(weights) - 1), 1.0)
    score.value, score.seen = score.value + told, score.seen + told
    score.positive = True
    score.supported += [e.id for e in hits[:4]]
    first = {(e.file, e.line) for e in facts.get("error.first")}
    if any((e.file, e.line) in first for e in hits):
        score.value += FIRST_FAILURE
    return max(weights.values())


def _weigh_required(score: _Score, facts: Facts, signature: float) -> None:
    """Add what is required. Proof is in the predicates, in a decisive line, or in a strong one of its own."""
    decisive = signature >= DECISIVE
    states = []
    for predicate in score.playbook.requires:
        found = judge(predicate, facts)
        states.append(found.state)
        if found.state == "true":
            score.value += REQUIRED
            score.supported += found.ids
            score.positive = True
        elif found.state == "missing":
            score.value += 0.0 if decisive else REQUIRED_UNKNOWN
            score.missing.append(describe(predicate))
        else:
            score.value += REQUIRED_FALSE
            score.contradicted += found.ids
            score.false_required = True
    any_of = [judge(p, facts) for p in score.playbook.any_of]
    # a line that says next to nothing is counted as the signature that it is, not as one of the signs besides
    signs = [
        j.state == "true" and not (p.key == score.playbook.key and signature < SIGNATURE["normal"])
        for p, j in zip(score.playbook.any_of, any_of, strict=True)
    ]
    if any(signs):
        score.value += ANY_OF
        seen = any(s and not p.key.startswith(STATED) for p, s in zip(score.playbook.any_of, signs, strict=True))
        score.seen += ANY_OF if seen else 0.0
        score.positive = True
        score.supported += [i for j in any_of if j.state == "true" for i in j.ids]
    elif any_of and not decisive:
        score.signed = signature > 0
        unknown = _is_open(score.playbook, any_of, facts)
        score.value += ANY_OF_UNKNOWN if unknown else ANY_OF_FALSE
        score.missing += [describe(p) for p, j in zip(score.playbook.any_of, any_of, strict=True) if j.state != "true"][
            :3
        ]
    # what was merely asked for proves nothing: a setting of this size is in sound runs too
    telling = [
        j.state == "true"
        and not p.key.startswith("settings.")
        and (p.key != score.playbook.key or signature >= SIGNATURE["strong"])
        for p, j in zip(score.playbook.any_of, any_of, strict=True)
    ]
    held = all(s == "true" for s in states) and (not any_of or any(telling))
    # one of many signs proves no playbook of the general kind: such signs are in sound runs too
    enough = bool(states or (any_of and not score.playbook.general))
    score.proven = not score.false_required and (decisive or (held and enough))


def _is_open(playbook: Playbook, any_of: list[Judgement], facts: Facts) -> bool:
    """Whether what could prove it is still unknown.

    What a tool could tell that found nothing to look at, or was not run, leaves it open only where no other tool
    looked: otherwise each check that a playbook names would make its cause more likely by not being made.
    """
    pairs = list(zip(playbook.any_of, any_of, strict=True))
    looked = [j for p, j in pairs if j.state != "missing" or facts.was_looked_for(p.key)]
    return not looked or any(j.state == "missing" for j in looked)


def _place(scores: list[_Score], facts: Facts) -> None:
    """What happened to another variant alone does not explain why this one failed.

    An earlier night that ran into its time limit is no reason for the exception of the next.
    """
    failed = {e.variant for e in facts.get("error.first")}
    if len(failed) != 1 or None in failed:
        return
    by_id = {e.id: e for found in facts.by_key.values() for e in found}
    for s in scores:
        told = {by_id[i].variant for i in s.supported if i in by_id}
        s.elsewhere = bool(told) and not told & {None, *failed}
        s.value += ELSEWHERE if s.elsewhere else 0.0


def _hold_to_what_was_seen(scores: list[_Score], facts: Facts) -> None:
    """What a run merely asked for is in sound runs too: a loss or a speed must have been seen to carry a verdict.

    Code that may be slow is in sound runs as well: where nobody asks about speed it has to have been measured.
    """
    keys = {e.id: e.key for found in facts.by_key.values() for e in found}
    slow = {str(e.value) for key in ("question.symptom", "question.complaint") for e in facts.get(key)} & OF_SPEED
    for s in scores:
        family = s.playbook.cause.partition(".")[0]
        merely = (*STATED, "code.", "lint.") if family == "speed" and not slow else MERELY
        if family in ENDS_NOTHING and all(keys.get(i, "").startswith(merely) for i in s.supported):
            s.value = min(s.value, NO_REASON)


def _hold_to_the_exception(scores: list[_Score], facts: Facts) -> None:
    """Where an exception ended the run, what cannot have raised it carries no verdict, however usual it is."""
    if not ended_by_exception(facts):
        return
    by_id = {e.id: e for found in facts.by_key.values() for e in found}
    for s in scores:
        told = [by_id[i] for i in s.supported if i in by_id]
        if not s.playbook.cause.startswith("none.") and is_no_reason(s.playbook.cause, told):
            s.value = min(s.value, NO_REASON)


def _hold_to_the_attempt(scores: list[_Score], facts: Facts) -> None:
    """What only an attempt shows that is not the one to explain carries no verdict."""
    aside = set_aside(facts)
    if aside is None:
        return
    by_id = {e.id: e for found in facts.by_key.values() for e in found}
    for s in scores:
        told = [e for i in s.supported if (e := by_id.get(i)) and e.line and not e.key.startswith(CIRCUMSTANCES)]
        if told and s.playbook.cause != SOUND and all(aside(e) for e in told):
            s.value = min(s.value, NO_REASON)


def _hold_to_the_fault(scores: list[_Score], facts: Facts) -> None:
    """An end that was reached says nothing of a fault that ends no run: where one was seen, the run is not sound."""
    rivals = [s for s in scores if not s.playbook.cause.startswith("none.")]
    faults = [s.value for s in rivals if s.seen >= FAULT_SEEN and s.value - s.start >= FAULT]
    for s in scores:
        if faults and s.playbook.cause == SOUND:
            s.value = min(s.value, max(faults) - BESIDE_IT)


def _trace_to_origin(scores: list[_Score]) -> None:
    """A cause that a credible one upstream explains is its consequence, not a rival."""
    by_value = sorted(scores, key=lambda s: -s.value)
    for upstream in by_value:
        if not upstream.positive or upstream.value < 0 or upstream.explained_by:
            continue
        behind = 3.0 if upstream.signed else 0.0  # circumstances alone take nothing from a stronger rival
        for s in by_value:
            downstream = s.playbook.cause in upstream.playbook.explains
            same = s.playbook.cause == upstream.playbook.cause
            if downstream and not same and not s.explained_by and upstream.value > s.value - behind:
                s.value += EXPLAINED
                s.explained_by = upstream.playbook.cause


@cache
def _pattern(pattern: str) -> re.Pattern[str]:
    """Signatures are written for the stripped body; the evidence shows the whole line, so anchors are let go."""
    return re.compile(pattern.removeprefix("^"))


def describe(predicate: Predicate) -> str:
    """A predicate in words, for "what is missing"."""
    if predicate.op in ("exists", "absent"):
        return f"{predicate.key} {'seen' if predicate.op == 'exists' else 'looked for and not there'}"
    against = predicate.than if predicate.than else predicate.value
    words = {"eq": "=", "ne": "!=", "gt": ">", "lt": "<", "matches": "matching"}
    return f"{predicate.key} {words.get(predicate.op, predicate.op)} {against}"


def evidence_of(hypothesis: Hypothesis, facts: Facts) -> list[Evidence]:
    """The evidence a hypothesis stands on, in the order it was weighed."""
    by_id = {e.id: e for found in facts.by_key.values() for e in found}
    return [by_id[i] for i in hypothesis.supported_by if i in by_id]


def _unique(ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(ids))
