"""Known conflicts of versions, judged against what a run says about its environment."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.own_files import KNOWLEDGE, read_table
from ..run.files import Line, RunFile
from .settings import Setting, Settings, read_settings
from .versions import Environment, Fact, Version, release

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# What the published wheels of torch hold (`compatibility.yaml`), against the GPU and the libraries beside them.


_BUILD = re.compile(r"\+cu(\d{2})(\d)\b")
_PUBLISHED = re.compile(r"\d+\.\d+\.\d+")

Said = tuple[str, str, str, list[Version | Fact]]  # id, what is wrong, what to do, where it stands


def torch_conflicts(environment: Environment, wheels: dict[str, Any], gpus: list[list[Any]]) -> Iterator[Said]:
    """GPUs without kernels in the wheel, and libraries that are not those the wheel was linked against."""
    torches = [v for v in environment.of("torch") if len(release(v.version)) > 1]
    if len({release(v.version)[:2] for v in torches}) != 1:
        return
    torch = torches[0]
    wheel = wheels.get(".".join(map(str, release(torch.version)[:2])))
    if wheel is None:
        return
    yield from _kernels(environment, torches, wheel, gpus)
    beside = [v for v in environment.versions if v.file.name == torch.file.name]
    for package in ("nccl", "cudnn", "triton"):
        have = next((v for v in beside if v.package == package), None)
        if have and package in wheel and (wrong := _unfit(package, have.version, wheel[package])):
            says = f"torch {torch.version} {wrong} {package} {wheel[package]}, beside it is {have.version}"
            yield f"torch-{package}", says, f"the {package} that torch's own requirements name", [have, torch]


def _kernels(environment: Environment, torches: list[Version], wheel: dict, gpus: list[list[Any]]) -> Iterator[Said]:
    build, torch = _build(environment, torches, wheel)
    reach = wheel["cuda"].get(build)
    if reach is None:
        return
    lowest, highest = (tuple(map(int, x.rstrip("+").split("."))) for x in reach.split("-"))
    for fact in environment.facts:
        if fact.key != "gpu" or (capability := _capability(str(fact.value), gpus)) is None:
            continue
        # A cubin runs on later minor versions of its major one; a `+` says that PTX for newer ones is inside.
        if capability < lowest or (capability[0] > highest[0] and not reach.endswith("+")):
            says = f"the wheel of torch {torch.version} for CUDA {build} holds kernels for compute capability {reach}; "
            says += f"{fact.value} has {capability[0]}.{capability[1]}"
            fits = [b for b, r in wheel["cuda"].items() if _covers(r, capability)]
            fix = f"the build of this torch for CUDA {' or '.join(fits)}" if fits else "another release of torch"
            yield "torch-wheel-kernels", says, fix, [torch, fact]
            return


def _covers(reach: str, capability: tuple[int, int]) -> bool:
    lowest, highest = (tuple(map(int, x.rstrip("+").split("."))) for x in reach.split("-"))
    return capability >= lowest and (capability[0] <= highest[0] or reach.endswith("+"))


def _build(environment: Environment, torches: list[Version], wheel: dict[str, Any]) -> tuple[str, Version]:
    """The CUDA version of the wheel: from its local version; a plain release on x86-64 is the one of PyPI."""
    for v in torches:
        if m := _BUILD.search(v.version):
            return f"{m[1]}.{m[2]}", v
    plain = _PUBLISHED.fullmatch(torches[0].version) and not environment.of("cuda")
    elsewhere = any(f.key == "arch" and str(f.value) in ("aarch64", "arm64") for f in environment.facts)
    return (wheel["default"] if plain and not elsewhere else ""), torches[0]


def _capability(gpu: str, gpus: list[list[Any]]) -> tuple[int, int] | None:
    for pattern, capability in gpus:
        if re.search(pattern, gpu):
            major, _, minor = str(capability).partition(".")
            return int(major), int(minor)
    return None


def _unfit(package: str, have: str, want: str) -> str:
    """How a library differs from the one the wheel names, if in a way that breaks; empty otherwise."""
    here, there = release(have), release(want)
    if package == "nccl":  # newer ones are put in on purpose, and keep the old symbols
        return "calls symbols of" if here < there else ""
    if package == "cudnn":
        return "is linked against" if here[0] != there[0] else ""
    return "requires" if here[:2] != there[:2] else ""


# ----------

FACTS = KNOWLEDGE / "compatibility.yaml"
_CONDITION = re.compile(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*")
_COMPATIBILITY_BUILD = re.compile(r"\+cu(\d{2})(\d)\b")
_BEFORE = re.compile(r"(?i)(?<![a-z])(?:before|old|prev(?:ious)?|works?|worked|working|last[-_]?good)(?![a-z])")
_AFTER = re.compile(r"(?i)(?<![a-z])(?:after|new|now|current|upgraded|updated|fails|failing|broken)(?![a-z])")
_MACHINE = ("gpu", "arch", "os", "compute_capability")

Place = tuple[RunFile, Line]


@dataclass(frozen=True, slots=True)
class Conflict:
    """A fact that holds here, with every line it stands on."""

    id: str
    says: str
    fix: str
    packages: tuple[str, ...]
    places: tuple[Place, ...]


@cache
def _facts(path: Path = FACTS) -> dict[str, Any]:
    return read_table(path)


def holds(version: str, condition: str) -> bool:
    """Whether a version meets `>=2.6,<2.8`; `==16.1` holds for all its patches; `x` for any."""
    here = release(version)
    for part in condition.split(","):
        m = _CONDITION.fullmatch(part)
        if not m:
            continue
        want = release(m[2])
        width = max(len(here), len(want))
        left, right = (t + (0,) * (width - len(t)) for t in (here, want))
        fits = {">=": left >= right, "<=": left <= right, ">": left > right, "<": left < right,
                "==": here[: len(want)] == want[: len(here)]}[m[1]]  # fmt: skip
        if not fits:
            return False
    return bool(here)


def conflicts(environment: Environment, settings: Settings) -> Iterator[Conflict]:
    """Every known conflict that the environment shows."""
    environment = _as_it_is(environment)
    for fact in _facts()["conflicts"]:
        places = _judge(fact, environment, settings)
        if places:
            yield Conflict(
                fact["id"], fact["says"], fact.get("fix", ""), tuple(fact["when"]), tuple(dict.fromkeys(places))
            )
    yield from _pins(environment)
    for name, says, fix, where in torch_conflicts(environment, _facts()["torch"], _facts()["gpus"]):
        yield Conflict(name, says, fix, ("torch",), tuple((w.file, w.line) for w in where))


def _as_it_is(environment: Environment) -> Environment:
    """Without what a list of packages from before a change says of packages that a list from after it has too."""
    after = {v.package for v in environment.versions if _AFTER.search(v.file.name)}
    left = [v for v in environment.versions if not (v.package in after and _BEFORE.search(v.file.name))]
    return replace(environment, versions=left)


def _judge(fact: dict[str, Any], environment: Environment, settings: Settings) -> list[Place]:
    places: list[Place] = []
    for package, condition in fact["when"].items():
        found = _judged(environment.of(package), condition)
        if not found:
            return []
        places += found
    if condition := fact.get("cuda_build"):
        found = [(v.file, v.line) for v, build in _builds(environment) if holds(build, condition)]
        if not found:
            return []
        places += found[:1]
    for key in _MACHINE:
        if pattern := fact.get(key):
            found = [(f.file, f.line) for f in environment.facts if f.key == key and re.search(pattern, str(f.value))]
            if not found:
                return []
            places += found[:1]
    for name, pattern in fact.get("settings", {}).items():
        found = [(s.file, s.line) for s in settings.all if s.name == name and re.search(pattern, str(s.value))]
        if not found:
            return []
        places += found[:2]
    return places


def _judged(versions: list[Version], condition: str) -> list[Place]:
    """Lines of versions that meet a condition."""
    return [(v.file, v.line) for v in versions if holds(v.version, condition)][:4]


def _builds(environment: Environment) -> Iterator[tuple[Version, str]]:
    """The CUDA version that torch was built for: from its local version, or as printed."""
    for v in environment.of("torch"):
        if m := _COMPATIBILITY_BUILD.search(v.version):
            yield v, f"{m[1]}.{m[2]}"
    for v in environment.of("cuda"):
        yield v, v.version


def _pins(environment: Environment) -> Iterator[Conflict]:
    """Packages built for another torch than the one installed."""
    torches = [v for v in environment.of("torch") if len(release(v.version)) > 1]
    if len({release(v.version)[:2] for v in torches}) != 1:
        return
    torch = torches[0]
    for package, table in _facts()["pins"].items():
        for v in environment.of(package)[:1]:
            fitting = [(k, t) for k, t in table.items() if release(v.version)[: len(release(k))] == release(k)]
            wanted = max(fitting, key=lambda kt: len(kt[0]), default=None)
            if wanted and release(wanted[1]) != release(torch.version)[:2] and v.file.name == torch.file.name:
                says = f"{package} {v.version} is built for torch {wanted[1]}, installed is torch {torch.version}"
                fix = f"install the {package} that belongs to the torch release"
                yield Conflict(
                    f"{package}-pin", says, fix, (package, "torch"), ((v.file, v.line), (torch.file, torch.line))
                )


# ----------
# Vocabularies that configs name: a run that goes on from another's weights with the same words under other numbers.

BYTES = 16 << 20
FEWEST = 20  # words, below which a file is no vocabulary
ALIKE, MOVED = 0.8, 0.2  # of the words: in both; under another number
_NAMES_IT = re.compile(
    r"(?i)(?:^|[._-])(?:vocab(?:ulary)?|tokenizer|dict(?:ionary)?|token_?map|word_?map)(?:_?(?:file|path))?$"
)
_WRITES = re.compile(r"(?i)(?:^|[._-])(?:out|output|save|ckpt|checkpoint|model)(?:put)?(?:_?(?:dir|path|folder|to))?$")


@dataclass(frozen=True, slots=True)
class Renumbered:
    """Two vocabularies of one line of models, the lines that name them, and how many words have another number."""

    one: Setting
    other: Setting
    moved: int
    words: int

    @property
    def places(self) -> tuple[tuple[RunFile, Line], ...]:
        return (self.other.file, self.other.line), (self.one.file, self.one.line)

    @property
    def says(self) -> str:
        """Both names and the count, in words."""
        return f"{self.moved} of {self.words} words have other ids in {self.other.value} than in {self.one.value}"


def renumbered(ws: Workspace) -> Iterator[Renumbered]:
    """Configs that load what another config wrote, and name another vocabulary than that one did."""
    own = [s for s in read_settings(ws).all if not s.file.good and s.file.role == "config"]
    asked = [s for s in own if isinstance(s.value, str)]
    named = [s for s in asked if _NAMES_IT.search(s.key)]
    for one in named:
        for other in named:
            if one.file == other.file or one.value == other.value or not _goes_on(asked, one.file, other.file):
                continue
            a, b = _words(ws, one.value), _words(ws, other.value)
            both = a.keys() & b.keys()
            moved = sum(a[w] != b[w] for w in both)
            if len(both) >= max(FEWEST, ALIKE * max(len(a), len(b))) and moved >= MOVED * len(both):
                yield Renumbered(one, other, moved, len(both))


def _goes_on(asked: list[Setting], first: RunFile, second: RunFile) -> bool:
    """Whether the second config reads from where the first one writes."""
    written = [s.value.strip("./ ") for s in asked if s.file == first and _WRITES.search(s.key)]
    read = [s.value.strip("./ ") for s in asked if s.file == second and not _WRITES.search(s.key)]
    return any(w and (r == w or r.startswith(w + "/")) for w in written for r in read)


def _words(ws: Workspace, name: str) -> dict[str, int]:
    """Number by word of a vocabulary among the run's files: JSON of words, or one word a line; empty where none."""
    end = name.replace("\\", "/").lstrip("./")
    file = next((f for f in ws.files if f.name == end or f.name.endswith("/" + end)), None)
    if file is None or file.size > BYTES:
        return {}
    return ws.memo(("vocabulary", file.name), lambda: _read(ws, file))


def _read(ws: Workspace, file: RunFile) -> dict[str, int]:
    text = ws.text(file, BYTES)
    if text.lstrip()[:1] != "{":
        lines = text.splitlines()
        return {w: n for n, w in enumerate(lines)} if file.name.endswith(".txt") and len(lines) >= FEWEST else {}
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    inner = known.get("model", {}).get("vocab") if isinstance(known.get("model"), dict) else known
    return {w: n for w, n in inner.items() if isinstance(n, int)} if isinstance(inner, dict) else {}
