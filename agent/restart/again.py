"""The advice of a report made whole: choices of a checkpoint, what each costs, and how the node at fault is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..predicates import Facts
from ..reading.roster import roster
from ..report import Report
from .advice import culprits, outcome_of
from .choices import BEGINNING, beginning, choices
from .cost import cost_of

if TYPE_CHECKING:
    from ..types import Evidence
    from ..workspace import Workspace


def complete(report: Report, facts: Facts, ws: Workspace) -> None:
    """Fill in what the files of the run tell about starting again. A report without advice stays as it is."""
    restart, cause = report.restart, report.root_cause.id
    if restart is None:
        return
    outcome = outcome_of(cause)
    cost = cost_of(ws, facts, report.root_cause.first_failure.step)
    restart.choices = choices(ws, facts, cost, carried=outcome.carried)
    if restart.choices:
        best = restart.choices[0]
        sure = best.clean or best.checkpoint == BEGINNING
        restart.from_checkpoint = best.checkpoint if best.clean else None
        restart.lost_steps, restart.lost_gpu_hours = (best.lost_steps, best.lost_gpu_hours) if sure else (None, None)
    elif cost.reached and restart.advice in ("restart", "restart_excluding"):
        restart.choices = [beginning(cost, "no checkpoint is among these files; name their folder with --run too")]
    if restart.advice == "restart_excluding":
        restart.exclude = culprits(outcome, proof_of(report, facts), facts, lambda rank: _host_of(ws, facts, rank))
        if not restart.exclude and outcome.find:
            report.next_steps.append(outcome.find)


def proof_of(report: Report, facts: Facts) -> list[Evidence]:
    """What the verdict stands on."""
    ids = {link.evidence for link in report.chain if link.role == "cause"}
    ids |= {i for d in report.differential[:1] if d.id == report.root_cause.id for i in d.supported_by}
    return [e for found in facts.by_key.values() for e in found if e.id in ids]


def _host_of(ws: Workspace, facts: Facts, rank: int) -> str | None:
    """The host of a rank: by its log's name, else by what any other line of it says."""
    member = roster(ws).members.get(rank)
    if member is not None and member.file.host:
        return member.file.host
    hosts = {e.host for found in facts.by_key.values() for e in found if e.rank == rank and e.host}
    return next(iter(hosts)) if len(hosts) == 1 else None
