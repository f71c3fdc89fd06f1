"""The repairs of a verdict on the run's own files: patches that were checked, or what to put in by hand."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ...core import deadline
from ...core.errors import ChangeRefused, DiffRefused
from ...core.playbook import Fix, Playbook
from ...core.report import ByHand, Patch, Report, ReportFix
from ...core.unified import applied, unified
from ...reading.memory.memory_changes import recorded
from ...reading.memory.memory_model import as_it_would_be, fits_in_words, gib, needed
from ...reading.memory.memory_plan import plan_of
from ...reading.memory.model_config import models_of
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ...reading.settings.changed_settings import Overlaid, reread
from ...reading.settings.lint_rules import arithmetic_lints
from ...reading.settings.lints import lints
from ...reading.settings.settings import Source
from ...reading.settings.settings_map import settings_map
from ...verdict.predicates import Facts
from ..patching.change import change, rename
from ..patching.environment_changes import change_variables
from ..patching.spelling import REMOVE, Changed, Edit, table
from .amounts import Amounts
from .recipe import MICRO, STEPS, Ground, Recipe, ground, recipe, same
from .treatment_words import by_name, changes_told, edit_told, groups, risk, sentences, settled_text, shows

# ----------
# Where the settings of a recipe go: into the files that hold them, or into the one where they belong.


_LAUNCHES = ("torchrun", "deepspeed", "accelerate launch", "srun", "ray job", "python")


@dataclass(slots=True)
class Placed:
    """New texts of files, what was changed in each, and what has to be put in by hand."""

    texts: dict[RunFile, str] = field(default_factory=dict)
    edits: dict[RunFile, list[Edit]] = field(default_factory=dict)
    by_hand: list[ByHand] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, file: RunFile, changed: Changed) -> bool:
        """Keep what was changed in a file; whether anything was."""
        if not changed.edits:
            return False
        self.texts[file] = changed.text
        self.edits.setdefault(file, []).extend(changed.edits)
        return True


def placed(on: Ground, recipe: Recipe, env: Mapping[str, str | None]) -> Placed:
    """Every setting and variable of a repair in its file; all or none of those that belong together."""
    out, first_of = Placed(), {n: group for group in groups() for n in group}
    values = {n: v for n, v in recipe.values.items() if not (same(recipe.before[n], v) and on.is_set(_alike(n)))}
    known = {n for n in values if on.is_set(_alike(n)) or any(True for _ in homes(on, n))}
    for name, value in values.items():
        if (
            name not in known
            and name not in first_of
            and (known or set(settings_map().canonical[name].spelled) <= {"also"})
        ):
            continue  # other frameworks' way to say it, or a word of single scripts
        if note := _need_not(on, recipe, name, known):
            out.notes.append(note)
            continue
        missing = len(out.by_hand)
        _setting(on, name, value, out)
        if out.by_hand[missing:] and name in first_of:
            return _none_of(out)
    if site := [f"{variable} depends on your site" for variable, value in env.items() if "<" in (value or "")]:
        out.by_hand += [ByHand(text=f"export {v}={value}", why=site[0]) for v, value in env.items()]
    else:
        for variable, value in env.items():
            _variable(on, variable, value, out)
    out.by_hand += [ByHand(text="", why=why) for why in recipe.open.values()]
    return out


def _none_of(out: Placed) -> Placed:
    """Half of a repair is another repair: what was placed is told as text beside what could not be."""
    told = [
        ByHand(text=e.new, where=f"{file.name}:{e.line}", why="it belongs together with what is put in by hand")
        for file, edits in out.edits.items()
        for e in edits
    ]
    return Placed(by_hand=[*told, *out.by_hand], notes=out.notes)


def _need_not(on: Ground, recipe: Recipe, name: str, known: set[str]) -> str:
    """Why accumulation is not written beside a micro-batch, in words; empty where it has to be."""
    if name != STEPS or MICRO not in recipe.values or on.is_set((STEPS,)):
        return ""
    if on.is_set(("global_batch_size",)):
        return f"Accumulation follows from the global batch, which stays {on.now('global_batch_size')}."
    if MICRO in known and name not in known:
        return "Nothing in this run's files accumulates gradients: the global batch changes with the micro-batch."
    return ""


@cache
def _alike(name: str) -> tuple[str, ...]:
    """A setting and the switches that say something of it: `fp16` and `bf16` of the precision."""
    says = [other for other, by in settings_map().implies.items() if any(name in implied for implied in by.values())]
    return (name, *says)


def _setting(on: Ground, name: str, value: Any, out: Placed) -> None:
    """One setting in every file that holds it, else in the first that can."""
    holding = list(_carriers(on, _alike(name)))
    failed: list[ByHand] = []
    for source in holding:
        changed = _changed(on, source, name, value, out)
        out.take(source.file, changed)
        failed += _by_hand(source.file, changed)
    if holding or value is REMOVE:
        out.by_hand += failed
        return
    for source in homes(on, name):
        changed = _changed(on, source, name, value, out)
        if out.take(source.file, changed):
            return
        if not changed.snippets:
            return  # nothing being there says it already
        failed += _by_hand(source.file, changed)
    out.by_hand += failed[:1] or [by_name(on, name, value)]


def _changed(on: Ground, source: Source, name: str, value: Any, out: Placed) -> Changed:
    text = out.texts.get(source.file, on.texts[source.file.name])
    file = source.file.name
    return change(text, file, {name: value}, source.framework, versions=on.versions, given=file in on.given)


def _by_hand(file: RunFile, changed: Changed) -> list[ByHand]:
    return [ByHand(text=s.text, where=file.name, why=s.reason) for s in changed.snippets]


def _carriers(on: Ground, names: tuple[str, ...]) -> Iterator[Source]:
    """Files that hold a setting; a default in code only where nothing else does. `auto` takes it from elsewhere."""
    found = [s for s in on.settings if s.name in names and s.value != "auto"]
    given = [s for s in found if not s.default] or found
    held = {s.file.name for s in given}
    return (source for source in on.sources if source.file.name in held)


def homes(on: Ground, name: str) -> list[Source]:
    """Files of a framework that has a word for the setting, the one that sets most first."""
    spelled = settings_map().canonical[name].spelled
    able = [s for s in on.sources if s.framework and s.asks and settings_map().owns(s.framework, spelled)]
    if name in table()["by_trainer"] and _trainer(on):
        able = [s for s in able if s.framework != "deepspeed"]  # the trainer refuses a value of its own beside its flag
    count = {s.file.name: sum(x.file.name == s.file.name and x.own for x in on.settings) for s in able}
    return sorted((s for s in able if count[s.file.name]), key=lambda s: (-count[s.file.name], s.file.name))


def _trainer(on: Ground) -> bool:
    """Whether a trainer of the Hugging Face family fills in the DeepSpeed file."""
    return any(settings_map().owns(s.framework, ["hf"]) for s in on.reading.sources if s.framework)


def _variable(on: Ground, variable: str, value: str | None, out: Placed) -> None:
    """A variable where it is set already, else in the script that launches the job; taken out without a value."""
    scripts = [s for s in on.sources if s.format in ("shell", "env", "python")]
    setting = [s for s in scripts if variable in on.texts[s.file.name]]
    launching = sorted((s for s in scripts if s.format == "shell"), key=lambda s: -_launches(on, s))
    failed: list[ByHand] = []
    asked = REMOVE if value is None else value
    for source in setting or (launching if value is not None else ()):
        text = out.texts.get(source.file, on.texts[source.file.name])
        changed = change_variables(text, source.file.name, {variable: asked})
        if out.take(source.file, changed) or not changed.snippets:
            return
        failed += _by_hand(source.file, changed)
    why = "no launch script is among the run's files"
    out.by_hand += failed[:1] or ([] if value is None else [ByHand(text=f"export {variable}={value}", why=why)])


def renamed(on: Ground, names: Mapping[str, str], out: Placed) -> None:
    """Arguments under their new names, in every file that has the old one."""
    for old, new in names.items():
        for source in on.sources:
            text = out.texts.get(source.file, on.texts[source.file.name])
            if old.replace("_", "-") in text.replace("_", "-"):
                changed = rename(text, source.file.name, old, new, source.file.name in on.given)
                out.take(source.file, changed)
                out.by_hand += _by_hand(source.file, changed)


def _launches(on: Ground, source: Source) -> int:
    """How much a script looks like the one that starts the training."""
    text = on.texts[source.file.name]
    own = sum(s.file.name == source.file.name and s.own for s in on.settings)
    return 10 * sum(word in text for word in _LAUNCHES) + min(own, 50)


# ----------
# A patch set is checked before it is shown: what it does to the run's other settings, and to memory.

GIB = 1 << 30
_ADVICE = ("folklore_setting",)  # rules that tell of habits, not of conflicts


@dataclass(slots=True)
class Checked:
    """What a patch set brings with it.

    Attributes:
        conflicts: sums that do not come out any more; such a set is not offered.
        notes: what else is to be known of the run as it would be.
        memory: the estimate before and after, empty where nothing is known or nothing changes.
    """

    conflicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    memory: str = ""


def checked(on: Ground, texts: dict[RunFile, str]) -> Checked:
    """Read the run again as it would be."""
    reading = reread(on.reading, texts)
    then = Overlaid(on.ws, reading, texts)
    before = {x.rule for x in on.lints}
    new = [x for x in lints(then, reading) if x.rule not in {*before, *_ADVICE}]
    sums = {x.rule for x in arithmetic_lints(reading)}
    out = Checked(memory=_memory(on.ws, then))
    for x in new:
        (out.conflicts if x.rule in sums else out.notes).append(x.says)
    return out


def _memory(ws: Workspace, then: Workspace) -> str:
    """The estimate before and after, for the largest model the run describes; empty where it stays or is unknown."""
    if not models_of(ws) or plan_of(ws).assumed != plan_of(then).assumed:
        return ""  # places that disagree: the difference would be one of assumptions
    try:
        estimates = as_it_would_be(ws, then)
    except ValueError:  # sizes that cannot be, such as more stages than layers
        return ""
    if estimates is None:
        return ""
    before, after = estimates
    if before.plan == after.plan or abs(before.peak.total - after.peak.total) < 0.01 * GIB:
        return ""
    said = f"Estimated memory of a step: {gib(needed(before))} before, {gib(needed(after))} after"
    capacity = recorded(ws)
    return f"{said}; that {fits_in_words(after, capacity.bytes)}." if capacity else f"{said}, on each card."


# ----------

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
