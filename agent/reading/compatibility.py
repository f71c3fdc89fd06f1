"""Known conflicts of versions, judged against what a run says about its environment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from .files import Line, RunFile
from .settings import Settings
from .torch_wheels import torch_conflicts
from .versions import Environment, Version, release

FACTS = Path(__file__).resolve().parent.parent.parent / "knowledge" / "compatibility.yaml"
_CONDITION = re.compile(r"\s*(>=|<=|==|<|>)\s*([\d.]+)\s*")
_BUILD = re.compile(r"\+cu(\d{2})(\d)\b")
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
    return yaml.load(path.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


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
        if m := _BUILD.search(v.version):
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
