"""The repairs of a verdict on the run's own files: patches that were checked, or what to put in by hand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .. import deadline
from ..errors import ChangeRefused, DiffRefused
from ..patching import change
from ..playbook import Fix, Playbook
from ..predicates import Facts
from ..reading.files import RunFile
from ..report import ByHand, Patch, Report, ReportFix
from ..unified import applied, unified
from ..workspace import Workspace
from .amounts import Amounts
from .checks import Checked, checked
from .ground import Ground, ground
from .placing import Placed, placed, renamed
from .recipe import Recipe, recipe
from .telling import changes_told, edit_told, risk, settled_text, shows
from .words import sentences

PATCHED = ("confirmed", "likely", "hypothesis")  # a verdict that names nothing has nothing to repair
_EXPORT = re.compile(r"(?:export|unset) (\w+)\b")


@dataclass(slots=True)
class Treated:
    """One repair: the patches it became, still without ids, and its words."""

    fix: ReportFix
    patches: list[Patch] = field(default_factory=list)
    settled: bool = False
    empty: bool = False


def treat(report: Report, playbooks: Sequence[Playbook], ws: Workspace, facts: Facts | None = None) -> None:
    """Give the report's repairs their patches.

    A patch that only helps to find the cause comes behind those that repair; what the run has already comes last and
    says so.
    """
    playbook = next((p for p in playbooks if p.slug == report.root_cause.playbook), None)
    if (
        playbook is None
        or report.status not in PATCHED
        or not any(f.settings or f.env or f.rename for f in playbook.fixes)
    ):
        return
    on = ground(ws, report)
    evidence = facts or Facts.of([])
    named = {f.title: f for f in playbook.fixes}
    treated = [_treated(on, named.get(told.title), told, evidence) for told in report.fixes]
    treated = [t for t in treated if not t.empty]
    treated.sort(key=lambda t: (t.settled, t.fix.finds and bool(t.patches)))
    known = {(p.file, p.diff): p.id for p in report.patches}
    for each in treated:
        for patch in each.patches:
            if (patch.file, patch.diff) not in known:  # two repairs may come to the same change
                patch.id = known[patch.file, patch.diff] = f"P{len(known) + 1}"
                report.patches.append(patch)
            each.fix.patches.append(known[patch.file, patch.diff])
    report.fixes = [t.fix for t in treated]


def _treated(on: Ground, fix: Fix | None, told: ReportFix, facts: Facts) -> Treated:
    deadline.check()
    if fix is None or not (fix.settings or fix.env or fix.rename):
        return Treated(told)
    wanted = recipe(fix, on.now, Amounts(on, facts).of)
    if not (wanted.values or wanted.open or fix.env or fix.commands or fix.text):
        return Treated(told, empty=True)  # the evidence gives none of its amounts
    told = told.model_copy(deep=True)
    told.risk = risk(fix, wanted)
    if wanted.settled and not fix.env:
        told.why = sentences(settled_text(wanted), fix.why, fix.text)
        return Treated(told, settled=True)
    made = placed(on, wanted, fix.env)
    renamed(on, _refused_names(fix, facts), made)
    told.by_hand = made.by_hand
    found = checked(on, made.texts) if made.texts else Checked()
    if why := _refused(on, wanted, made, found):
        told.by_hand += [
            ByHand(text=e.new, where=f"{file.name}:{e.line}", why=why) for file in made.texts for e in made.edits[file]
        ]
        made.texts.clear()
    placed_or_told = {w for h in told.by_hand for w in fix.env if f"{w}=" in h.text}
    if made.texts or placed_or_told:
        told.commands = [c for c in told.commands if not ((m := _EXPORT.match(c)) and m[1] in fix.env)]
    changes = [] if made.texts else changes_told(wanted)
    told.why = sentences(fix.why, fix.text, *changes, *made.notes, found.memory)
    return _offered(on, fix, wanted, made, found, told) if made.texts else Treated(told)


def _refused_names(fix: Fix, facts: Facts) -> dict[str, str]:
    """Names that a library refused and the repair knows the new name of."""
    said = [e.value.get("name") for e in facts.get("sig.env.api_change_signature") if isinstance(e.value, dict)]
    return {old: new for old, new in fix.rename.items() if old in said}


def _offered(on: Ground, fix: Fix, wanted: Recipe, made: Placed, found: Checked, told: ReportFix) -> Treated:
    """A repair with its patches."""
    told.risk = sentences(told.risk, *found.notes[:2])
    verify = sentences(shows(wanted), f"Check it with: {told.verify}" if told.verify else "")
    words = {"title": told.named, "why": sentences(fix.why or fix.title, found.memory), "risk": told.risk}
    patches = [
        _patch(on, file, text, made).model_copy(update={**words, "verify": verify})
        for file, text in made.texts.items()
    ]  # fmt: skip
    return Treated(told, patches)


def _patch(on: Ground, file: RunFile, text: str, made: Placed) -> Patch:
    old = on.texts[file.name]
    return Patch(
        id="", file=file.name, sha256=hashlib.sha256(old.encode()).hexdigest(), diff=unified(old, text, file.name),
        edits=[edit_told(e) for e in made.edits[file]],
    )  # fmt: skip


def _refused(on: Ground, wanted: Recipe, made: Placed, found: Checked) -> str:
    """Why a patch set is not offered; empty where it may be."""
    if found.conflicts:
        return f"as a patch it would not come out: {found.conflicts[0]}"
    for file, text in made.texts.items():
        old = on.texts[file.name]
        try:
            if applied(unified(old, text, file.name), old, file.name) != text:
                return "its diff does not give the intended text"
            if _moves_again(on, file, text, wanted):
                return "made twice, it would change the file again"
        except (DiffRefused, ChangeRefused) as e:
            return str(e)
    return ""


def _moves_again(on: Ground, file: RunFile, text: str, wanted: Recipe) -> bool:
    """Whether the same change, made on its own result, changes it again where the file holds the settings."""
    framework = next((s.framework for s in on.sources if s.file.name == file.name), "")
    again = change(text, file.name, wanted.values, framework, versions=on.versions, given=file.name in on.given)
    return any(e.old for e in again.edits)
