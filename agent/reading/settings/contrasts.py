"""In what two runs differ: settings between variants or from a good run, asked against used, versions.

between_variants(ws, reading)      -> [Contrast, ...]: settings in which the runs of a folder differ
asked_against_used(ws, reading)    -> settings whose printed value is not the one asked for, within one run
between_versions(environment)      -> packages of other versions
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from ..run.files import Line, RunFile
from ..run.workspace import Workspace
from .settings import Setting, Settings
from .settings_map import parse, settings_map
from .sides import (
    GOOD,
    LIBRARY,
    RESULTS,
    WRITES,
    Side,
    belonging,
    form_of,
    groups,
    is_part,
    is_setting,
    plain_form,
    run_key,
    same,
)
from .versions import Environment, Version, release

Place = tuple[RunFile, Line]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two values of one thing, with the line of each (one side may have none: it is not set there)."""

    name: str
    a: Any
    b: Any
    where: str
    places: tuple[Place, ...]
    sides: tuple[Side, Side] | None = None


def between_variants(ws: Workspace, reading: Settings) -> list[Contrast]:
    """Settings that differ between runs, rows of a table, or the good run and this one; each name once."""
    out: dict[str, Contrast] = {}
    for one, other in pairs(ws, reading):
        for c in differences(ws, reading, one, other):
            if c.name not in out or len(c.places) > len(out[c.name].places):
                out[c.name] = c
    return list(out.values()) or _named_by_label(ws, reading)


def pairs(ws: Workspace, reading: Settings) -> Iterator[tuple[Side, Side]]:
    """Every two runs of one program."""
    for sides in groups(ws, reading):
        yield from ((one, other) for one, other in combinations(sides, 2) if _alike(one, other))


def differences(ws: Workspace, reading: Settings, one: Side, other: Side) -> list[Contrast]:
    """Settings that two runs of one program do not have alike; of two stages, only what the second takes over."""
    out = []
    for name in dict.fromkeys([*one.asked, *other.asked, *one.used, *other.used]):
        if name == "seed" and _seeds(one, other):
            continue
        found = _differ(name, one, other, "asked") or _differ(name, one, other, "used")
        if found is None and not (one.used.get(name) or other.used.get(name)):
            found = _lacking(ws, reading, name, one, other)
        if found is not None:
            out.append(found)
    if out and continues(reading, one, other) is not None:
        out = [c for c in out if not _OF_A_STAGE.search(c.name)]
    return out


# What a next stage is meant to have of its own: how fast and how long it learns, and how often it looks.
_OF_A_STAGE = re.compile(
    r"(?:^|\.)(?:\w*learning_rate\w*|warmup\w*|lr_\w+|\w*batch_size|gradient_accumulation_steps|weight_decay|seed"
    r"|\w*epochs|(?:\w+_)?(?:steps|every|interval|iters?|iterations)|(?:eval|save)_\w+)$"
)


def _alike(one: Side, other: Side) -> bool:
    """Runs of one program, as far as their commands and what they print or are given tell."""
    if one.programs and other.programs and not one.programs & other.programs:
        return False
    if one.roles and other.roles and not one.roles & other.roles:  # the log and the metrics of one run
        return False
    kinds = [{name for held in (s.asked, s.used) for name in held} for s in (one, other)]
    return len(kinds[0] & kinds[1]) * 2 >= min(map(len, kinds))


def _differ(name: str, one: Side, other: Side, kind: str) -> Contrast | None:
    """Both give the setting, and no value of the one is a value of the other."""
    held = [getattr(side, kind).get(name, []) for side in (one, other)]
    forms = [{form_of(s) for s in found} for found in held]
    if not all(held) or forms[0] & forms[1]:
        return None
    x, y = held[0][0], held[1][0]
    if form_of(x) in (None, False) and form_of(y) in (None, False):
        return None
    where = f"{one.label} / {other.label}"
    return Contrast(name, x.value, y.value, where, ((x.file, x.line), (y.file, y.line)), (one, other))


def _lacking(ws: Workspace, reading: Settings, name: str, one: Side, other: Side) -> Contrast | None:
    """One alone gives the setting, and not the value that applies where nobody does."""
    giver, without = (one, other) if one.asked.get(name) else (other, one)
    if not giver.asked.get(name) or without.asked.get(name):
        return None
    s = giver.asked[name][0]
    if any(x.file == s.file for n in LIBRARY for x in giver.asked.get(n, ())):
        return None
    kind = (s.place.format, s.place.style)
    alike = any((o.place.format, o.place.style) == kind for found in without.asked.values() for o in found)
    if not alike or form_of(s) is None or form_of(s) in _defaults(reading, s):
        return None
    where = f"{giver.label} / {without.label}"
    return Contrast(name, s.value, None, where, ((s.file, s.line),), (giver, without))


def _defaults(reading: Settings, s: Setting) -> set[Any]:
    """Values that hold where a setting is not given: by the program's own code, else by the framework."""
    in_code = reading.code.defaults(s.key.rpartition(".")[2]) if reading.code is not None else []
    if in_code:
        return {plain_form(v) for v in in_code} | ({False} if None in in_code else set())
    if not s.known:
        return {None}
    known = settings_map()
    found = {plain_form(known.default(s.name, f)) for f in {s.framework, *reading.frameworks}} - {None}
    return found or ({False} if known.canonical[s.name].type == "bool" else {None})


def continues(reading: Settings, one: Side, other: Side) -> Side | None:
    """Which of two runs starts from what the other wrote: a next stage, and no variant of it."""
    for later, first in ((one, other), (other, one)):
        said = [s for s in reading.all if isinstance(s.value, str) and not s.default]
        written = {s.value.strip("./") for s in said if s.file.name in first.files and WRITES.search(s.key)} - {""}
        read = [s.value.strip("./") for s in said if s.file.name in later.files and not WRITES.search(s.key)]
        if later.resumes and not first.resumes and later.writes & first.writes:
            return later
        if any(r == w or r.startswith(f"{w}/") for r in read for w in written):
            return later
    return None


def _seeds(one: Side, other: Side) -> bool:
    """Whether the seed is but the name of the runs: `seed1` and `seed2`."""
    return all(
        any(
            str(s.value) == re.sub(r"\D", "", side.label)
            for held in (side.asked, side.used)
            for s in held.get("seed", ())
        )
        for side in (one, other)
    )


_LABEL = re.compile(r"^([A-Za-z_]{1,12}?)[_=\-]?(\d[\d.]*(?:e-?\d+)?)$")  # one that names a setting: cp2, bs16, lr1e-4


def _named_by_label(ws: Workspace, reading: Settings) -> list[Contrast]:
    """Runs called cp1 and cp2 differ in context_parallel, even where only one config was kept."""
    labels = sorted({f.variant for f in ws.by_role("log", "metrics") if f.variant and not f.good})
    parts = [m.groups() for at in labels if (m := _LABEL.match(at))]
    if len(parts) < 2 or len(parts) != len(labels) or len({p[0].lower() for p in parts}) != 1:
        return []
    name = settings_map().labels.get(parts[0][0].lower())
    for s in reading.asked(name) if name else []:
        if str(s.value) in {p[1] for p in parts}:
            ordered = sorted(labels, key=lambda at: not at.endswith(str(s.value)))
            other = next(parse(p[1]) for p in parts if p[1] != str(s.value))
            return [Contrast(s.name, s.value, other, " / ".join(ordered[:4]), ((s.file, s.line),))]
    return []


# ----------
# Asked and used, within one run.

_ENGINES = {"vllm", "sglang"}
_CONVERTED = {
    "model", "tokenizer", "device", "backend", "optimizer", "lr_scheduler", "visible_devices", "seed", "loss_scale",
}  # fmt: skip


def asked_against_used(ws: Workspace, reading: Settings) -> Iterator[Contrast]:
    """Settings whose printed value is not the one asked for, in the same run.

    What a flag defaults to is no wish: the command line that gave another value need not be among the files. A file
    that several runs share speaks for one of them only if all print what it did not ask for: it may have been edited.
    """
    own = [s for s in reading.all if s.known and not s.file.good and s.place.format != "table" and is_setting(s)]
    programs = {s.file for s in reading.sources if s.trains}  # what stands there at the top is a default
    asked = [s for s in own if not (s.used or s.default or (s.file in programs and s.place.style == "assignment"))]
    used = [s for s in own if s.used and s.value is not None and s.name not in _CONVERTED]
    if any(s.name == "max_steps" and isinstance(s.value, int | float) and s.value > 0 for s in asked):
        used = [s for s in used if s.name != "epochs"]  # what is printed then follows from the steps
    results: dict[str, Side] = {}
    for f in ws.by_role("log", "metrics")[:RESULTS]:
        results.setdefault(run_key(f), Side(run_key(f))).files.add(f.name)
    belongs = belonging(ws, [*asked, *used], results)
    runs = {run_key(u.file) for u in used} | {run_key(f) for f in ws.by_role("log") if not is_part(f)}
    for (name, key), printed in _by_run(used).items():
        mine = [
            (s, belongs.get((s.file.name, s.group)) or belongs.get((s.file.name, ""), ""))
            for s in asked
            if s.name == name
        ]
        u = printed[0]
        wishes = [s for s, run in mine if run == key or (not run and _agree(used, name, s, runs))]
        if u.framework in _ENGINES:  # an engine has sizes of its own
            wishes = [s for s in wishes if s.framework == u.framework]
        wishes = [s for s in wishes if _comparable(s.value, u.value)]
        if wishes and not any(same(s.value, v.value) for s in wishes for v in printed):
            s = wishes[0]
            yield Contrast(name, s.value, u.value, u.file.name, ((s.file, s.line), (u.file, u.line)))


def _by_run(used: Iterable[Setting]) -> dict[tuple[str, str], list[Setting]]:
    found: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for u in used:
        found[u.name, run_key(u.file)].append(u)
    return found


def _agree(used: list[Setting], name: str, wish: Setting, runs: set[str]) -> bool:
    """Whether every run that is there printed another value than the shared file asks for."""
    printed = {run_key(u.file): u for u in used if u.name == name}
    return printed.keys() >= runs and not any(same(u.value, wish.value) for u in printed.values())


def _comparable(asked: Any, used: Any) -> bool:
    """Both plain and of one kind."""
    kinds = [
        ("b" if isinstance(v, bool) else "n" if isinstance(v, int | float) else type(v).__name__) for v in (asked, used)
    ]
    return asked is not None and kinds[0] == kinds[1] and not (kinds[0] == "n" and asked in (-1, 0) and used != 0)


# ----------
# Versions.


def between_versions(environment: Environment) -> Iterator[Contrast]:
    """Packages of which variants, trials or the good run have different versions."""
    by_package: dict[str, list[Version]] = defaultdict(list)
    for v in environment.versions:
        if len(release(v.version)) > 1 and v.package not in ("cuda_driver", "cuda_toolkit", "kernel"):
            by_package[v.package].append(v)
    for package, versions in by_package.items():
        for a in versions:
            b = next((v for v in versions if _apart(a, v)), None)
            if b:
                where = f"{_label(a.file) or a.file.name} / {_label(b.file) or b.file.name}"
                yield Contrast(package, a.version, b.version, where, ((a.file, a.line), (b.file, b.line)))
                break


def _label(file: RunFile) -> str:
    return GOOD if file.good else file.variant or ""


def _apart(a: Version, b: Version) -> bool:
    """Different versions told by different variants, rows of one table, or runs."""
    width = min(len(release(a.version)), len(release(b.version)))
    if release(a.version)[:width] == release(b.version)[:width]:
        return False
    if a.row and b.row and a.file == b.file:
        return True
    return _label(a.file) != _label(b.file) and (a.file.good != b.file.good or bool(a.file.variant and b.file.variant))
