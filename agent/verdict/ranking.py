"""Ranking: playbooks against evidence. Pure; the same evidence always gives the same ranking.

A playbook collects traits (`traits`); a linear model over them (`knowledge/weights.yaml`, fitted by `make weights` on
incidents of which every rule was left out that holds for no other source) gives log odds, and a softmax with a null
option ("nothing that can be told") turns them into probabilities that add up to less than 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache

from ..core.own_files import KNOWLEDGE, read_table
from ..core.playbook import Playbook, Predicate
from ..core.types import Evidence, Hypothesis
from .meaning import left_by
from .predicates import Facts, judge
from .steer import RAISED, Sounds
from .traits import Scope, Traits, consequences, traits_of

# ----------
# Whether an exception ended the run: then that is the effect which a cause has to explain.

ENDS_NOTHING = ("loss", "speed", "eval")  # families of causes under which a process lives on
GOOD_END = ("run.healthy_end", "run.finished", "run.recovered", "job.exit_ok")
BEHAVIOUR = frozenset({"nan", "spike", "divergence", "not_learning", "slow", "eval_bad", "rl_bad", "generation"})
ASKED_TO_STOP = frozenset({"KeyboardInterrupt", "SystemExit"})


def ended_by_exception(facts: Facts) -> bool:
    """Whether an exception ended the run, as far as is known, and the question is not about something else."""
    if not facts.get("error.first") or any(facts.get(key) for key in GOOD_END):
        return False
    if BEHAVIOUR & {str(e.value) for e in facts.get("question.symptom")}:
        return False
    names = {str(e.value) for e in facts.get("error.exception")}
    return bool(names - ASKED_TO_STOP)


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

SOUND = "none.healthy"
# what may be so in a run that came to its end with a falling loss
LEFT_BY_A_GOOD_END = frozenset({"slow", "eval_bad", "generation", "rl_bad"})
SPOKEN_OF = 2.0  # log odds from which the lines of a failure sound like a cause
# Log odds of a line by which the users' own page knows its failure: it was written for this site, and the reader has
# never heard of it. Public incidents cannot tell what it is worth.
OWN_LINE = 6.0
OF_A_POLICY = ("reward.", "rl.", "logprob_diff.")
FOLLOWS = 0.9  # of the share of a consequence, what its origin gets
WHOLE = 3  # parts of a proof
CEILING = 0.97  # no claim is surer than what some hundred labelled incidents can bear out


@cache
def weights() -> dict[str, dict[str, float]]:
    """Log odds by trait: of a cause, of a sound run, of nothing that can be told."""
    return read_table(KNOWLEDGE / "weights.yaml")


def rank(playbooks: Iterable[Playbook], facts: Facts, sounds: Sounds | None = None) -> list[Hypothesis]:
    """Every cause with something to say for it, best first.

    Args:
        sounds: what the question and the run sound like (`steer.heard`).
    """
    heard = sounds or Sounds()
    best = candidates(playbooks, facts, heard)
    ended = ended_by_exception(facts)
    nothing = score(nothing_traits(facts), "nothing")
    asked = frozenset(str(e.value) for e in facts.get("question.symptom"))
    behind = {t.playbook.cause: u.playbook.cause for t, u in consequences(t for t, _ in best)}
    found = [
        Hypothesis(
            cause=t.playbook.cause,
            playbook=t.playbook.slug,
            title=t.playbook.title,
            score=value - nothing,
            supported_by=list(dict.fromkeys(t.supported)),
            contradicted_by=list(dict.fromkeys(t.contradicted)),
            missing=t.missing,
            positive=t.positive,
            seen=t.proof.seen,
            parts=_parts(t, facts),
            unexplained=ended and not _may_have_raised(t, facts),
            leaves=left_by(t.playbook.cause, asked),
            explained_by=behind.get(t.playbook.cause),
            elsewhere=t.away,
        )
        for t, value in best
    ]
    return _weighed(found, {h.cause: h.score for h in found})


def _weighed(found: Iterable[Hypothesis], odds: Mapping[str, float], nothing: float = 0.0) -> list[Hypothesis]:
    """Hypotheses with the probabilities that log odds come to; best first.

    What an origin with a whole proof brings about is no rival of it: most of its share is the origin's.
    """
    known = {h.cause: h for h in found}
    total = math.exp(nothing) + sum(map(math.exp, odds.values()))
    share = {cause: math.exp(value) / total for cause, value in odds.items()}
    for cause in known:
        if (origin := _origin(cause, known)) != cause:
            share[origin] += FOLLOWS * share[cause]
            share[cause] *= 1 - FOLLOWS
    weighed = [replace(h, probability=min(CEILING, share[h.cause])) for h in known.values()]
    return sorted(weighed, key=lambda h: -h.probability)


def _origin(cause: str, known: Mapping[str, Hypothesis]) -> str:
    """What a cause follows from in the end, as far as proofs are whole; itself where it follows from nothing."""
    seen: set[str] = set()
    while cause not in seen:
        seen.add(cause)
        upstream = known.get(known[cause].explained_by or "")
        if upstream is None or len(upstream.parts) < WHOLE:
            break
        cause = upstream.cause
    return cause


def candidates(playbooks: Iterable[Playbook], facts: Facts, heard: Sounds) -> list[tuple[Traits, float]]:
    """Of each cause in question the playbook with most to say for it, with its log odds; best first."""
    out, scope = out_of_question(facts), scope_of(facts)
    found = [traits_of(p, facts, scope) for p in playbooks if p.cause not in out]
    found = [t for t in found if t.positive or _is_raised(t.playbook.cause, heard)]
    for t in found:
        _listen(t, heard)
    for t, _ in consequences(found):
        t.counts["consequence"] = 1.0
    sound = sound_traits(facts, heard)
    best: dict[str, tuple[Traits, float]] = {}
    for t in found:
        cause = t.playbook.cause
        value = score(t.counts, "cause") + heard.moved.get(cause, 0.0)
        value += score(sound, "sound") if cause == SOUND else 0.0
        value += OWN_LINE if t.playbook.own and t.counts.get("line") else 0.0
        if cause not in best or value > best[cause][1]:
            best[cause] = (t, value)
    return sorted(best.values(), key=lambda found: -found[1])


def _is_raised(cause: str, heard: Sounds) -> bool:
    return not cause.startswith("none.") and heard.of(cause) >= RAISED


def score(counts: Mapping[str, float], of: str) -> float:
    """The log odds that traits add up to."""
    known = weights()[of]
    return sum(known.get(name, 0.0) * much for name, much in counts.items())


def _listen(t: Traits, heard: Sounds) -> None:
    if t.playbook.cause == SOUND:
        return
    for name, said in (
        ("sounds", heard.whole), ("sounds_told", heard.told),
        ("sounds_question", heard.question), ("sounds_failure", heard.failure),
    ):  # fmt: skip
        t.counts[name] = said.get(t.playbook.cause, 0.0)


def sound_traits(facts: Facts, heard: Sounds) -> dict[str, float]:
    """What is counted of a sound run alone."""
    return {"base": 1.0, "ended": float(ended_by_exception(facts)), "sounds": heard.whole.get(SOUND, 0.0)}


def nothing_traits(facts: Facts) -> dict[str, float]:
    """What is counted of the option that nothing can be told: the less was seen, the more it is."""
    return {"base": 1.0, "evidence": math.log1p(sum(map(len, facts.by_key.values())))}


def scope_of(facts: Facts) -> Scope:
    """What of the evidence is about the failure that is to be explained."""
    first = facts.get("error.first")
    variants = {e.variant for e in first}
    return Scope(
        aside=set_aside(facts),
        failed=frozenset(variants) if len(variants) == 1 and None not in variants else frozenset(),
        broke=frozenset((e.file, e.line) for e in first),
        by_id={e.id: e for found in facts.by_key.values() for e in found},
    )


def _parts(t: Traits, facts: Facts) -> tuple[str, ...]:
    """The parts of a proof that are there. That a run is sound is shown by the way it went, and by what explains the
    complaint: something ordinary, or an end that leaves nothing of it.
    """
    if t.away or t.refuted:
        return ()
    if t.playbook.cause != SOUND:
        return t.proof.parts
    if any(_stands(p, facts) for p in t.playbook.contradicts):
        return ()
    asked = {str(e.value) for e in facts.get("question.symptom")}
    particular = facts.get("question.complaint") or asked & LEFT_BY_A_GOOD_END
    explained = t.proof.ordinary or not particular
    if any(key.startswith(OF_A_POLICY) for key in facts.by_key) and not facts.get("reward.rising"):
        explained = False  # a policy's loss says nothing of how it goes
    seen = t.proof.effect or t.proof.ordinary
    return ("effect", "mechanism") if seen and explained else ("effect",) if seen else ()


# What shows that a fault on the way was overcome, and the faults it takes back; none named: all that came before.
OVERCOME: dict[str, frozenset[str]] = {
    "run.recovered": frozenset(),
    "loss.nan_recovered": frozenset({"loss.first_nan_step", "grad_norm.nonfinite_step", "metrics.nan_count"}),
}
AT_THE_END = frozenset({"loss.nan_until_end"})  # nothing came after it


def _stands(fault: Predicate, facts: Facts) -> bool:
    """Whether a plain fault was seen and not overcome: an end that was reached does not make up for it."""
    if fault.weight != "strong" or judge(fault, facts).state != "true":
        return False
    overcome = any(facts.get(sign) and (not faults or fault.key in faults) for sign, faults in OVERCOME.items())
    return fault.key in AT_THE_END or not overcome


def _may_have_raised(t: Traits, facts: Facts) -> bool:
    """Whether a cause can be why an exception ended the run: something that speaks for it is of the exception itself,
    or it is a fault under which processes end, and more of it was seen than circumstances.
    """
    if t.playbook.cause.partition(".")[0] not in ENDS_NOTHING and t.proof.mechanism:
        return True
    if t.counts.get("sounds_failure", 0.0) >= SPOKEN_OF:
        return True
    ends = {i for key in ("error.*", "memory.*", "watchdog.*", "job.*") for i in (e.id for e in facts.get(key))}
    return bool(t.counts.get("line")) or not ends.isdisjoint(t.supported)


def with_vote(ranked: list[Hypothesis], cause: str, vote: float, page: Playbook | None) -> list[Hypothesis]:
    """The ranking with `vote` log odds more for a cause that a model named; best first.

    A cause that collected nothing starts as improbable as the last. None of the causes (`page` is None) raises the
    null option instead. Scores and parts of proofs, and with them what counts as confirmed, stay.
    """
    known = list(ranked)
    if page is not None and cause not in {h.cause for h in known}:
        known.append(Hypothesis(cause=cause, playbook=page.slug, title=page.title, score=UNHEARD))
    raised = {h.cause: h.score + (vote if h.cause == cause else 0.0) for h in known}
    return _weighed(known, raised, 0.0 if page is not None else vote)


UNHEARD = -2.0  # log odds of a cause of which nothing was seen or heard


def evidence_of(hypothesis: Hypothesis, facts: Facts) -> list[Evidence]:
    """The evidence a hypothesis stands on, in the order it was weighed."""
    by_id = {e.id: e for found in facts.by_key.values() for e in found}
    return [by_id[i] for i in hypothesis.supported_by if i in by_id]
