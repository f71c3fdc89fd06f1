"""What a restart does, by cause, and which nodes are to be left out: those at fault, not those that report it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from ..planner import HEALTHY, INSUFFICIENT
from ..playbook import KNOWLEDGE
from ..predicates import Facts
from ..report import Restart
from ..types import Evidence

MANY = 3  # nodes from which "all of them" is no fault of one


@dataclass(frozen=True, slots=True)
class Outcome:
    """What starting again does for some causes, as `knowledge/restart.yaml` explains it."""

    advice: str
    again: str
    carried: bool = False
    returns: bool = False
    find: str = ""
    culprit: frozenset[str] = frozenset()


@cache
def outcomes() -> dict[str, Outcome]:
    """What a restart does, by cause."""
    groups: list[dict[str, Any]] = yaml.load(
        (KNOWLEDGE / "restart.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return {
        cause: Outcome(
            g["advice"], g["again"], g.get("carried", False), g.get("returns", False),
            " ".join(g.get("find", "").split()), frozenset(g.get("culprit", ())),
        )
        for g in groups for cause in g["causes"]
    }  # fmt: skip


def outcome_of(cause: str | None) -> Outcome:
    """What a restart does for a cause; for one of a team's own that is in no group, that it needs its repair."""
    return outcomes().get(cause or "", Outcome("fix_first", "As it is, the job fails again."))


def advise(cause: str, proof: list[Evidence], facts: Facts, failed_at: int | None) -> Restart | None:
    """The advice for a verdict; None where there is nothing to start again.

    Args:
        proof: the evidence that bears the verdict; its hosts are left out where the fault is theirs.
        failed_at: step of the first failure, where it is known.
    """
    if cause in (HEALTHY, INSUFFICIENT):
        return None
    outcome = outcome_of(cause)
    restart = Restart.model_validate({"advice": outcome.advice})
    if outcome.advice == "restart_excluding":
        restart.exclude = culprits(outcome, proof, facts)
    saved = next((e for e in facts.get("checkpoint.last_clean") if e.kind != "absent"), None)
    if saved is not None:
        restart.from_checkpoint = str(saved.value)
        if failed_at is not None and saved.step is not None and failed_at > saved.step:
            restart.lost_steps = failed_at - saved.step
    return restart


def culprits(
    outcome: Outcome, proof: Iterable[Evidence], facts: Facts, host_of: Callable[[int], str | None] = lambda rank: None
) -> list[str]:
    """The nodes that the proof itself names as those at fault; none where it names every node of several.

    A line in a rank's log that reports the trouble names no culprit: every peer of a lost card reports it.

    Args:
        host_of: the host of a rank, for evidence that knows its rank alone.
    """
    named: dict[str, None] = {}
    for e in proof:
        if e.key not in outcome.culprit or e.kind in ("absent", "asked", "document"):
            continue
        host = _node_named(e) or e.host or (host_of(e.rank) if e.rank is not None else None)
        if host:
            named.setdefault(host)
    everyone = {e.host for found in facts.by_key.values() for e in found if e.host}
    return [] if len(named) >= MANY and everyone <= set(named) else sorted(named)


def _node_named(e: Evidence) -> str | None:
    """The node that Slurm's row or the comparison of steps is about: it leads the value."""
    if e.key in ("slurm.node_reason", "slurm.node_state"):
        return str(e.value).split()[0].rstrip(":") if str(e.value).strip() else None
    return str(e.value) if e.key == "skew.slow_host" and isinstance(e.value, str) else None
