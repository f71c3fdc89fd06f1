"""What became of a verdict's repairs: a patch that applies, text for the user's hand, a command, or words alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ..agent.errors import DiffRefused
from ..agent.library import playbooks
from ..agent.report import Patch, Report, ReportFix
from ..agent.treatment.ground import ground
from ..agent.unified import applied
from ..agent.workspace import Workspace

KINDS = ("patch", "held already", "by hand", "command", "words")
HELD = "The run has this already"


def repairs(report: Report, files: Path) -> Counter[str]:
    """How many of the report's repairs came out as what. A patch counts where it applies to the file as it stands."""
    good = {p.id for p in report.patches if _applies(p, files)}
    return Counter(_kind(fix, good) for fix in report.fixes)


def best(kinds: Counter[str]) -> str:
    """The strongest form of any repair; empty where there is none."""
    return next((kind for kind in KINDS if kinds[kind]), "")


def _kind(fix: ReportFix, good: set[str]) -> str:
    if fix.patches and set(fix.patches) <= good:
        return "patch"
    if fix.why.startswith(HELD):
        return "held already"
    return "by hand" if fix.by_hand else "command" if fix.commands else "words"


def _applies(patch: Patch, files: Path) -> bool:
    try:
        old = (files / patch.file).read_bytes().decode()
        return applied(patch.diff, old, patch.file) != old
    except (OSError, UnicodeDecodeError, DiffRefused):
        return False


def lives_in_a_file(report: Report, ws: Workspace) -> bool:
    """Whether a repair of the verdict sets something and the run brought a config, script or code that sets anything.

    Said of the run and the playbook alone, not of what could be written: whatever is missed counts against us.
    """
    playbook = next((p for p in playbooks() if p.slug == report.root_cause.playbook), None)
    if playbook is None or not any(f.settings or f.env for f in playbook.fixes):
        return False
    return bool(ground(ws, report).settings)
