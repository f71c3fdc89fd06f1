"""Where a run broke first: rank, host, step and time, from the lines that prove the verdict and what tells of ranks."""

from __future__ import annotations

from .predicates import Facts
from .report import FirstFailure
from .types import Evidence

# levels and trends: they bear a verdict out, and are no place where anything broke
_LEVELS = frozenset({"loss.decreasing", "loss.initial_value", "loss.final_value", "loss.few_steps"})
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
