"""What differs: between variants, between a good run and a bad one, between what was asked and what was used."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..run.files import Line, RunFile
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


# ----------
# One quantity printed for several implementations, and a run printed beside its continuation.
#
# eager     21.404566                      step   original   resumed
# compiled  61.734364                      21     2.3693     2.3693
#                                          22     2.2105     1784.9491

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|nan|inf)"
_NAMED = re.compile(
    r"(?i)^\s*[-*|]?\s*(?P<name>(?:(?:torch|hf|pytorch)[ ._-]?)?(?:eager|compiled?|inductor|reference|ref|naive|math|"
    r"sdpa|flash(?:[ _-]?attn|[ _-]?attention)?(?:[ _-]?[234])?|cudnn|triton|liger|fused|unfused|apex|xformers|"
    r"mem(?:ory)?[ _-]?efficient|fp64|fp32|tf32|cpu|cuda|gpu))"
    r"(?P<rest>[ \w()./-]{0,40}?)\s*[:=|]?\s+(?P<value>" + _NUMBER + r")\s*$"
)
_TENSOR = re.compile(r"(?i)tensor\(\s*(" + _NUMBER + r")[^)]*\)")
_COST = re.compile(
    rb"(?i)\b(?:ms|us|sec(?:onds?)?|latency|time|speed\w*|throughput|tok(?:ens)?/s|it/s|[tg]flops?|memory|[mg]i?b)\b"
)
_APART = 12  # lines between two that belong together
_EXACT = 0.02  # relative difference that no rounding makes

_STEP = re.compile(r"(?i)^(?:step|iter(?:ation)?|global_step|batch)$")
_WHOLE = re.compile(r"(?i)orig(?:inal)?|continu(?:ous|ed)|uninterrupted|baseline|reference|expected|straight|before")
_AGAIN = re.compile(r"(?i)resum\w*|restor\w*|(?:re)?loaded|after|restart\w*|from_?(?:ckpt|checkpoint)|with_?resume")


@dataclass(frozen=True)
class Disagreement:
    """Two implementations of the same thing with different results."""

    names: tuple[str, str]
    values: tuple[float, float]
    lines: tuple[Line, Line]


@dataclass(frozen=True)
class Continuation:
    """A continued run beside the one it should equal: the row where they agree, the row where they part."""

    agrees: Line | None
    parts: Line
    step: float
    whole: float
    again: float


def disagreements(lines: Iterable[Line]) -> Iterator[Disagreement]:
    """Neighbouring lines that name two implementations and differ by more than rounding, in one block of lines."""
    block: list[tuple[str, float, Line]] = []
    costs = -_APART  # the last line that speaks of time or memory: implementations differ in those by design
    for line in lines:
        if len(line.data) > 400:
            continue
        if _COST.search(line.data):
            costs, block = line.number, []
        if line.number - costs < _APART:
            continue
        found = _NAMED.match(_TENSOR.sub(r"\1", line.text))
        if not found:
            continue
        name = " ".join(found["name"].lower().split())
        if block and (line.number - block[-1][2].number > _APART or any(n == name for n, _, _ in block)):
            yield from _within(block)
            block = []
        block.append((name, float(found["value"]), line))
    yield from _within(block)


def _within(block: list[tuple[str, float, Line]]) -> Iterator[Disagreement]:
    if len(block) < 2:
        return
    first = block[0]
    for other in block[1:]:
        a, b = first[1], other[1]
        largest = max(abs(a), abs(b))
        far = largest > 1e-6 and abs(a - b) > _EXACT * largest
        if (math.isnan(a) != math.isnan(b)) or far:
            yield Disagreement((first[0], other[0]), (a, b), (first[2], other[2]))
            return


def continuations(lines: Iterable[Line]) -> Iterator[Continuation]:
    """Tables of a run and its continuation: the first row agrees, a later one is off by more than half."""
    columns: tuple[int, int] | None = None
    agrees: Line | None = None
    done = False
    for line in lines:
        cells = line.text.split()
        if cells and _STEP.match(cells[0]):
            whole = next((i for i, c in enumerate(cells) if i and _WHOLE.fullmatch(c)), None)
            again = next((i for i, c in enumerate(cells) if i and _AGAIN.fullmatch(c)), None)
            columns = (whole, again) if whole is not None and again is not None else None
            agrees, done = None, False
            continue
        if columns is None or done:
            continue
        numbers = _numbers(cells, max(columns) + 1)
        if numbers is None:
            columns = None if cells else columns
            continue
        one, two = numbers[columns[0]], numbers[columns[1]]
        if abs(one - two) <= 1e-3 * max(abs(one), 1e-9):
            agrees = line
        elif abs(two - one) > 0.5 * max(abs(one), 1e-9):
            done = True
            yield Continuation(agrees, line, numbers[0], one, two)


def _numbers(cells: list[str], least: int) -> list[float] | None:
    """The leading numbers of a row, where there are enough of them."""
    out: list[float] = []
    for cell in cells:
        try:
            out.append(float(cell))
        except ValueError:
            break
    return out if len(out) >= least else None
