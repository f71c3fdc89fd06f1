"""Where the settings of a recipe go: into the files that hold them, or into the one where they belong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..patching import REMOVE, Changed, Edit, change
from ..patching.environment import change_variables
from ..patching.renaming import rename
from ..patching.spelling import table
from ..reading.files import RunFile
from ..reading.settings import Source
from ..reading.settings_map import settings_map
from ..report import ByHand
from .ground import Ground
from .recipe import MICRO, STEPS, Recipe, same
from .telling import groups
from .unplaced import by_name

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
