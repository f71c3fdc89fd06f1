"""What is added to a verdict that stands: starting again, what came before, patches, commands with this run's names."""

from __future__ import annotations

from .calls import survived
from .history.team import Team
from .library import playbooks
from .operations import Scene, filled, operations
from .predicates import Facts
from .report import Report
from .restart.again import complete, proof_of
from .treatment.treat import treat
from .workspace import STDIN, Workspace

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
