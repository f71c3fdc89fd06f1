"""What became of a verdict's repairs: a patch that applies, text for the user's hand, a command, or words alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from ..agent.core.errors import DiffRefused
from ..agent.core.playbook import Fix, playbooks
from ..agent.core.report import Patch, Report, ReportFix
from ..agent.core.unified import applied
from ..agent.reading.run.workspace import Workspace
from ..agent.reading.settings.settings_map import settings_map
from ..agent.repair.treatment.recipe import Ground, ground, recipe

KINDS = ("patch", "held already", "by hand", "command", "words")
HELD = "The run has this already"


def repairs(report: Report, files: Path) -> Counter[str]:
    """How many of the report's repairs came out as what. A patch counts where it applies to the file as it stands.

    What only helps to find the cause is no repair.
    """
    good = {p.id for p in report.patches if _applies(p, files)}
    return Counter(_kind(fix, good) for fix in report.fixes if not fix.finds)


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
    """Whether the cause lies in a file that the run brought.

    It does where a repair of the verdict changes a setting that a file of the run holds, or that the framework of one
    has a word for, or a variable beside a launch script; to a value that does not depend on the site, and that is not
    there yet. Said of the run, the playbook and the settings map, not of what could be written.
    """
    playbook = next((p for p in playbooks() if p.slug == report.root_cause.playbook), None)
    if playbook is None:
        return False
    on = ground(ws, report)
    return any(_in_a_file(fix, on) for fix in playbook.fixes if not fix.finds)


def _in_a_file(fix: Fix, on: Ground) -> bool:
    wanted = recipe(fix, on.now)
    if any("<" not in (value or "") for value in fix.env.values()) and any(s.format == "shell" for s in on.sources):
        return True
    if wanted.settled:
        return False
    known, canonical = settings_map(), settings_map().canonical
    frameworks = {s.framework for s in on.sources if s.framework}
    return any(
        on.is_set((name,)) or any(known.owns(f, canonical[name].spelled) for f in frameworks) for name in wanted.values
    )
