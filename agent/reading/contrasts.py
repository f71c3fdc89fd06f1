"""What differs: between variants, between a good run and a bad one, between what was asked and what was used."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .files import Line, RunFile
from .settings import Setting, Settings
from .settings_map import settings_map
from .versions import Environment, Version, release

# Settings that differ between any two runs and tell nothing.
_NAMES = {
    "output_dir",
    "logging_steps",
    "node_rank",
    "master_addr",
    "master_port",
    "dataset",
    "deepspeed_config",
    "resume_from",
}
_NAME_KEYS = re.compile(
    r"(?:^|[._])(?:run_?name|exp(?:eriment)?_?name|out|output|dir|path|project|tags?|notes?|file|script"
    r"|wandb\w*|logging|log_\w+)$"
    r"|\.(?:name|id|config|c|log)$"
)
# A variant's label that names a setting: `cp2`, `bs16`, `lr1e-4`.
_LABEL = re.compile(r"^([A-Za-z_]{1,12}?)[_=\-]?(\d[\d.]*(?:e-?\d+)?)$")
Place = tuple[RunFile, Line]


@dataclass(frozen=True, slots=True)
class Contrast:
    """Two values of one thing, with the line of each (one side may have none)."""

    name: str
    a: Any
    b: Any
    where: str
    places: tuple[Place, ...]


def label(file: RunFile, group: str = "") -> str:
    """What a setting of this file belongs to: good run, variant, row; empty where the file speaks for all."""
    if file.good:
        return "good"
    return group if group.startswith("row ") else (file.variant or "")


def between_variants(reading: Settings) -> list[Contrast]:
    """Settings that differ between variants, rows of a sweep, or the good run and the rest."""
    kinds: dict[str, list[Setting]] = defaultdict(list)
    for s in reading.all:
        if s.note != "implied" and not s.default:
            kinds["table:" + s.file.name if s.place.format == "table" else "run"].append(s)
    out: list[Contrast] = []
    for settings in kinds.values():
        for side in _sides(settings):
            told = {c.name for c in out}
            out += [c for c in _differences(side) if c.name not in told]
    return out + (_named_by_label(reading) if not out else [])


def _differences(settings: list[Setting]) -> list[Contrast]:
    by_label: dict[str, dict[str, list[Setting]]] = defaultdict(lambda: defaultdict(list))
    for s in settings:
        by_label[label(s.file, s.group)][s.name].append(s)
    rest = by_label.pop("", {})
    if "good" in by_label and len(by_label) == 1:
        by_label["bad"] = rest
    if list(by_label) == ["row note"]:
        notes = {s.file for found in by_label["row note"].values() for s in found}
        by_label["asked"] = defaultdict(list, {n: [s for s in f if s.file in notes] for n, f in rest.items()})
        known = by_label["asked"]
        by_label["row note"] = defaultdict(list, {n: f for n, f in by_label["row note"].items() if known.get(n)})
        return [c for n in by_label["row note"] if (c := _first_difference(n, ["asked", "row note"], by_label))]
    labels = list(by_label)
    if len(labels) < 2:
        return list(_sibling_configs(rest))
    names = dict.fromkeys(n for found in by_label.values() for n in found)
    return [c for n in names if (c := _first_difference(n, labels, by_label))]


def _sides(settings: list[Setting]) -> Iterator[list[Setting]]:
    """What was asked for, and apart from it what was printed."""
    for used in (False, True):
        if side := [s for s in settings if s.used is used]:
            yield side


def _first_difference(name: str, labels: list[str], by_label: dict[str, dict[str, list[Setting]]]) -> Contrast | None:
    """The first two variants that give a setting different values, or of which one alone gives it."""
    if not _telling(name):
        return None
    found = [(at, by_label[at][name]) for at in labels if by_label[at].get(name)]
    first_label, first = found[0]
    for at, other in found[1:]:
        pair = next(((x, y) for x in first for y in other if not _same(x.value, y.value)), None)
        if pair and not any(_same(x.value, y.value) for x in first for y in other):
            x, y = pair
            return Contrast(name, x.value, y.value, f"{first_label} / {at}", ((x.file, x.line), (y.file, y.line)))
    lacking = [at for at in labels if not by_label[at].get(name) and _speaks_alike(first[0], by_label[at])]
    if lacking and len(found) < len(labels):
        places = tuple((s.file, s.line) for _at, f in found[:2] for s in f[:1])
        return Contrast(name, first[0].value, None, f"{first_label} / {lacking[0]}", places)
    return None


def _speaks_alike(s: Setting, others: dict[str, list[Setting]]) -> bool:
    """Whether the other variant has a file of the same format that could have given the setting."""
    return any(
        o.place.format == s.place.format and o.place.style == s.place.style for found in others.values() for o in found
    )


def _sibling_configs(rest: dict[str, list[Setting]]) -> Iterator[Contrast]:
    """Two config files that set mostly the same things, in a run whose names tell no variants."""
    files: dict[RunFile, dict[str, Setting]] = defaultdict(dict)
    for name, found in rest.items():
        for s in found:
            if not s.used and s.place.format in ("yaml", "json", "toml", "shell", "python"):
                files[s.file].setdefault(name, s)
    ordered = sorted(files, key=lambda f: f.name)[:12]
    for i, one in enumerate(ordered):
        for two in ordered[i + 1 :]:
            shared = files[one].keys() & files[two].keys()
            if one.path.suffix != two.path.suffix or len(shared) < max(4, 0.6 * max(len(files[one]), len(files[two]))):
                continue
            for name in sorted(files[one].keys() | files[two].keys(), key=str):
                x, y = files[one].get(name), files[two].get(name)
                if _telling(name) and not (x and y and _same(x.value, y.value)):
                    places = tuple((s.file, s.line) for s in (x, y) if s)
                    yield Contrast(
                        name, x.value if x else None, y.value if y else None, f"{one.name} / {two.name}", places
                    )
            return


def _named_by_label(reading: Settings) -> list[Contrast]:
    """Variants called cp1 and cp2 differ in context_parallel, even where only one config was kept."""
    labels = sorted({f for s in reading.sources if (f := s.file.variant) and not s.file.good})
    parts = [m.groups() for at in labels if (m := _LABEL.match(at))]
    if len(parts) < 1 or len(parts) != len(labels) or len({p[0].lower() for p in parts}) != 1:
        return []
    name = settings_map().labels.get(parts[0][0].lower())
    for s in reading.asked(name) if name else []:
        if str(s.value) in {p[1] for p in parts}:
            other = next((p[1] for p in parts if p[1] != str(s.value)), None)
            return [Contrast(s.name, s.value, other, " / ".join(labels[:4]), ((s.file, s.line),))]
    return []


def _telling(name: str) -> bool:
    return name not in _NAMES and not _NAME_KEYS.search(name)


def _same(a: Any, b: Any) -> bool:
    """Equal, up to how a number or word is written."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b or str(a).lower() == str(b).lower()
    if isinstance(a, int | float) and isinstance(b, int | float):
        return abs(a - b) <= 1e-9 * max(abs(a), abs(b))
    return str(a).strip().lower() == str(b).strip().lower()


def asked_against_used(reading: Settings) -> Iterator[Contrast]:
    """Settings whose printed value is not the one asked for, in the same variant.

    What a flag defaults to is no wish: the command line that gave another value need not be among the files.
    """
    asked: dict[tuple[str, str], list[Setting]] = defaultdict(list)
    for s in reading.all:
        if not s.used and s.known and not s.file.good and s.place.format != "table" and s.note != "add_argument":
            asked[s.name, s.file.variant or ""].append(s)
    told: set[tuple[str, str]] = set()
    for u in reading.all:
        key = (u.name, u.file.variant or "")
        if not u.used or u.file.good or key in told or u.value is None or not _telling(u.name) or u.name in _PATHS:
            continue
        mine = [s for s in (*asked[key], *(asked[u.name, ""] if key[1] else ())) if _comparable(s.value, u.value)]
        if u.framework in _ENGINES:  # an engine has sizes of its own
            mine = [s for s in mine if s.framework == u.framework]
        if mine and not any(_same(s.value, u.value) for s in mine):
            told.add(key)
            yield Contrast(
                u.name, mine[0].value, u.value, u.file.name, ((mine[0].file, mine[0].line), (u.file, u.line))
            )


_ENGINES = {"vllm", "sglang"}
_PATHS = {
    "model",
    "tokenizer",
    "device",
    "backend",
    "optimizer",
    "lr_scheduler",
    "visible_devices",
    "seed",
    "loss_scale",
    "debug",
}


def _comparable(asked: Any, used: Any) -> bool:
    """Both plain and of one kind; `auto`, placeholders and expressions cannot be compared."""
    if asked is None or (isinstance(asked, str) and (asked == "auto" or re.search(r"[${}<(]", asked))):
        return False
    kinds = [
        ("b" if isinstance(v, bool) else "n" if isinstance(v, int | float) else type(v).__name__) for v in (asked, used)
    ]
    return kinds[0] == kinds[1] and not (kinds[0] == "n" and asked in (-1, 0) and used != 0)


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
                where = f"{label(a.file) or a.file.name} / {label(b.file) or b.file.name}"
                yield Contrast(package, a.version, b.version, where, ((a.file, a.line), (b.file, b.line)))
                break


def _apart(a: Version, b: Version) -> bool:
    """Different versions told by different variants, rows of one table, or runs."""
    width = min(len(release(a.version)), len(release(b.version)))
    if release(a.version)[:width] == release(b.version)[:width]:
        return False
    if a.row and b.row and a.file == b.file:
        return True
    return label(a.file) != label(b.file) and (a.file.good != b.file.good or bool(a.file.variant and b.file.variant))
