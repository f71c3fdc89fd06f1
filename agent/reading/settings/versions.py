"""Versions of packages, drivers and machines, wherever a run tells them: lists, lock files, banners, paths, tables.

environment = read_environment(workspace)
environment.versions   -> [Version(package="torch", version="2.7.0+cu128", file=..., line=...), ...]
environment.facts      -> [Fact(key="gpu", value="NVIDIA H100 80GB HBM3", ...), ...]
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from ...core.errors import ParseError
from ...core.own_files import KNOWLEDGE, read_table
from ..run.files import Line, RunFile
from ..run.lines import output_lines
from .forms.settings_files import head, share

if TYPE_CHECKING:
    from ..run.workspace import Workspace

SAME = 2  # lines of one file that are kept for one version
REPEATS = 12  # lines alike but for their digits that are looked at
LOG_LINES, LOG_BYTES = 20_000, 2 << 20
PACKAGES = KNOWLEDGE / "packages.yaml"
FILES, TOTAL_BYTES = 400, 32 << 20

_NUMBER = r"\d+(?:\.\d+){1,4}(?:(?:a|b|rc|\.dev|\.post)\d+)?(?:\+[\w.]+)?"
_PIN = re.compile(rf"(?<![\w.\-])([A-Za-z][A-Za-z0-9_.\-]{{1,60}}?)(?:\[[\w,]+\])?\s?==\s?({_NUMBER})")
_LISTED = re.compile(
    r"^\s*(?:[-*]\s*)?`?([A-Za-z][\w.\-]{1,50}?)`?(?:\.version| version)?\s*(?:\([^)]{0,40}\))?"
    rf"\s*(?:[:=]\s*|\s+|\s\.{{3,}}\s)[vV]?({_NUMBER})\b"
)
# `[GCC 12.2.0]`: the compiler that Python was built with
_PAIRS = re.compile(
    r"(?<![\w./\-=\[])([A-Za-z][A-Za-z\-_]{1,30})[ :=]{1,3}v?(\d+\.\d+(?:\.\d+)*(?:\+[\w.]+)?)(?![\w/])"
)
_CONDA = re.compile(rf"^([a-z][\w.\-]{{1,50}})\s+({_NUMBER})\s+\S+\s+\S+\s*$")
_LOCK = re.compile(r'^\s*(?:name|version)\s*=\s*"([^"]{1,80})"\s*$')
# Of another language, whose packages are none of Python's.
_FOREIGN = re.compile(
    r"(?i)^(?:(?:cargo|gemfile|composer|podfile|mix|yarn|pubspec)\.lock|(?:package-lock\.json|pnpm-lock\.ya?ml|go\.sum))$"
)
_ASKED = re.compile(r"(?i)^(?:requirements|constraints)|^environment\.ya?ml$|^(?:uv|poetry|pdm|pixi)\.lock$|^pipfile")
_PATH_PYTHON = re.compile(r"/(?:lib|lib64)/python(3\.\d{1,2})/")
_LIKELY = re.compile(r"(?i)version|torch|transformers|cuda")
_LISTING = re.compile(
    r"freeze|pip|env|version|requirement|conda|lock|packages|system|sysinfo|setup|collect|info|hardware|machine"
)
# `since PyTorch 2.6`: a sentence about versions, not the one installed
_SPOKEN_OF = re.compile(r"(?i)\b(?:in|since|from|than|with|requires?|needs|to|until|before)\s$")
_HINT = re.compile(
    rb"==|[vV]ersion|NCCL|nccl|[tT]orch|LLM|sglang|[dD]river|NV|[cC]uda|CUDA|[pP]ython|[dD]eep[sS]peed|[lL]inux|[kK]ernel"
    rb"|[lL]ibc|[gG][cC][cC]|libarrow|dylib|sm_|compute_cap|x86_64|aarch64|arm64|amd64|GPU|gpu|[tT]esla|RTX|GTX|AMD"
    rb"|[xX*] ?[ABH]|Ubuntu|Debian|CentOS|Red Hat|RHEL|macOS|Windows|[tT]ransformers|[dD]evice"
)
_GPU_LINE = re.compile(r"(?i)\bgpu|nvidia|tesla|geforce|\brtx\b|device[ :]|instinct|cuda")
_ARCH = re.compile(r"\b(x86_64|aarch64|arm64|ppc64le|amd64)\b")
_OS = re.compile(
    r"\b((?:Ubuntu|Debian|CentOS|Rocky Linux|Red Hat Enterprise Linux|RHEL|SLES|macOS|Windows)"
    r"[ -]?(?:release )?\d[\w.]*)"
)
_CAPABILITY = re.compile(r"\bsm_?(\d{2,3}a?)\b|compute capability:? ?\(?(\d+)[., ]+(\d)\)?|\bcompute_(\d{2,3}a?)\b")
_COUNT = re.compile(
    r"(?i)\b(?:number of gpus|gpu count|gpus per node|num_gpus|gpu number)[ :=]+(\d{1,3})\b"
    r"|\b(\d{1,3}) ?[x\u00d7*] ?(?=NVIDIA |[ABH]\d{3}|L40|RTX|V100)"
)

_LIBRARY_PATH = re.compile(
    r"\bLD_(?:LIBRARY_PATH|PRELOAD)\s?[=:]\s?[\"']?((?!\s)\S*(?:cuda|nccl|nvidia|cudnn|torch|conda|stdc)\S*)"
)


@dataclass(frozen=True)
class Names:
    """What `knowledge/packages.yaml` says: package names, words that are none, aliases, banners, GPU names."""

    known: frozenset[str]
    not_packages: frozenset[str]
    aliases: dict[str, str]
    banners: tuple[tuple[str, re.Pattern[str]], ...]
    gpu: re.Pattern[str]


@cache
def names() -> Names:
    """The names, read once."""
    data = read_table(PACKAGES)
    banners = tuple((package, re.compile(pattern)) for package, pattern in data["banners"])
    gpu = re.compile(r"(?<![\w./])(" + "|".join(data["gpus"]) + r")(?![\w./])")
    return Names(frozenset(data["known"]), frozenset(map(str, data["not_packages"])), data["aliases"], banners, gpu)


@dataclass(frozen=True, slots=True)
class Version:
    """A package (normal name) with a version, and the line that says so."""

    package: str
    version: str
    file: RunFile
    line: Line
    row: bool = False  # one row of a table of trials: several versions are then meant to differ


@dataclass(frozen=True, slots=True)
class Fact:
    """Something else about the machine: gpu, gpu_count, arch, os, compute_capability, library_path."""

    key: str
    value: Any
    file: RunFile
    line: Line


@dataclass(slots=True)
class Environment:
    """The reading: every version and fact told, and the files that could not be read."""

    versions: list[Version] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, package: str) -> list[Version]:
        return [v for v in self.versions if v.package == package]


def package_name(raw: str) -> str:
    """`nvidia-nccl-cu12` as `nccl`, `Flash-Attn` as `flash_attn`."""
    name = re.sub(r"[-_. ]+", "_", raw.strip().lower()).strip("_")
    name = re.sub(r"^nvidia_(nccl|cudnn)_cu\d+$", r"\1", name)
    return names().aliases.get(name, name)


def release(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparing: `2.7.0+cu128` is (2, 7, 0)."""
    m = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(p[:9]) for p in m[0].split(".")[:5]) if m else ()


def read_environment(ws: Workspace) -> Environment:
    """All versions and machine facts of a run, read once."""
    return ws.memo("environment", lambda: _read(ws))


def _read(ws: Workspace) -> Environment:
    out, budget = Environment(), TOTAL_BYTES
    files = sorted(ws.files, key=lambda f: (f.role != "environment", f.role in ("log", "metrics"), f.name))
    limit = share(files[:FILES], LOG_BYTES, TOTAL_BYTES // 2)
    for file in files[:FILES]:
        if file.role in ("checkpoint", "data", "trace", "code"):
            continue
        if _FOREIGN.match(file.path.name) or _is_asked(ws, file):
            continue
        try:
            lines = head(ws.lines(file), min(limit, budget), LOG_LINES)
        except (ParseError, OSError, EOFError, ValueError) as e:
            out.problems.append(f"{file.name}: {e}"[:300])
            continue
        budget -= sum(len(line.data) for line in lines)
        _read_file(file, lines, out)
    return out


def _is_asked(ws: Workspace, file: RunFile) -> bool:
    """Whether a list stands with the sources of the program that ran: what a project asks for, not what is there."""
    home = file.name.rpartition("/")[0]
    own = (name for p in ws.ran.programs for name in (p.file.name, *p.reached))
    return bool(_ASKED.match(file.path.name)) and any(n.startswith(f"{home}/" if home else "") for n in own)


def _read_file(file: RunFile, lines: list[Line], out: Environment) -> None:
    name = file.path.name.lower()
    listing = _is_listing(name, lines) or (file.role == "environment" and _names_any(lines))
    table = name.endswith((".csv", ".tsv"))
    seen: Counter[tuple[str, str]] = Counter()
    pythons: set[str] = set()
    locked = ""
    for line in lines if listing else _telling(lines, table):
        text = line.text[:2000]
        if listing and text.lstrip().startswith("# ") and "==" in text:
            continue  # a pin that somebody took out
        for package, version in _versions(text, listing):
            seen[package, version] += 1
            if seen[package, version] <= SAME or table:
                out.versions.append(Version(package, version, file, line, table))
        if listing and (m := _LOCK.match(text)):
            if m[1][:1].isdigit() and locked:
                out.versions.append(Version(package_name(locked), m[1], file, line))
            locked = "" if m[1][:1].isdigit() else m[1]
        if (m := _PATH_PYTHON.search(text)) and m[1] not in pythons:
            pythons.add(m[1])
            out.versions.append(Version("python", m[1], file, line))
        for key, value in _facts(text, listing):
            seen[key, str(value)] += 1
            if seen[key, str(value)] == 1:
                out.facts.append(Fact(key, value, file, line))


def _telling(lines: list[Line], table: bool) -> Iterator[Line]:
    """Lines of a log that may name a version or a machine; of lines alike but for their digits only some."""
    alike: Counter[bytes] = Counter()
    for line in lines:
        shape = line.data[:96].translate(None, b"0123456789.eE+-")
        alike[shape] += 1
        if (alike[shape] <= REPEATS or table) and _HINT.search(line.data[:2000]):
            yield line


def _is_listing(name: str, lines: list[Line]) -> bool:
    """A file that is a list of versions: by its name, or because most lines are pins."""
    if _LISTING.search(name) and not name.endswith((".py", ".sh", ".log", ".csv", ".json")):
        return True
    sample = [line.text for line in lines[:40] if line.data.strip()]
    return len(sample) > 2 and sum(bool(_PIN.search(t)) for t in sample) * 2 > len(sample)


def _names_any(lines: list[Line]) -> bool:
    """Whether a list holds a package that is known: a list of scores has names with numbers too."""
    found = (m for line in lines for m in (*_PIN.finditer(line.text[:2000]), *_PAIRS.finditer(line.text[:2000])))
    return any(package_name(m[1]) in names().known for m in found) or any(_LOCK.match(x.text[:200]) for x in lines)


def _versions(text: str, listing: bool) -> Iterator[tuple[str, str]]:
    for m in _PIN.finditer(text):
        yield package_name(m[1]), m[2]
    for package, pattern in names().banners:
        if m := pattern.search(text):
            parts = [g for g in m.groups() if g]
            if package == "nccl" and len(parts) == 3:
                yield "nccl", ".".join(parts)
            elif package == "pyarrow":
                yield "pyarrow", f"{int(parts[0])}.{int(parts[1])}"
            else:
                yield package, parts[0].rstrip(".,")
    if not listing and not _LIKELY.search(text):
        return
    m = _LISTED.match(text) if listing else None
    m = m or (_CONDA.match(text) if listing else None)
    if m and (package := package_name(m[1])) not in names().not_packages:
        yield package, m[2]
    for m in () if "==" in text else _PAIRS.finditer(text):
        spoken_of = _SPOKEN_OF.search(text[max(0, m.start() - 12) : m.start()])
        if not spoken_of and (package := package_name(m[1])) in names().known:
            yield package, m[2]


def _facts(text: str, listing: bool) -> Iterator[tuple[str, Any]]:
    if (listing or _GPU_LINE.search(text)) and (m := names().gpu.search(text)):
        yield "gpu", m[1].strip()
    if m := _COUNT.search(text):
        yield "gpu_count", int(m[1] or m[2])
    if m := _ARCH.search(text):
        yield "arch", {"amd64": "x86_64", "arm64": "aarch64"}.get(m[1], m[1])
    if m := _OS.search(text):
        yield "os", m[1]
    elif ".dylib" in text:
        yield "os", "macOS"
    if m := _LIBRARY_PATH.search(text):
        yield "library_path", m[1].rstrip("\"';")[:300]
    if m := _CAPABILITY.search(text):
        digits = m[1] or m[4] or f"{m[2]}{m[3]}"
        yield "compute_capability", f"sm_{digits}"


# ----------
# Installed packages and what they require of each other, judged by the rules of Python's packaging standards.

# How pip words a conflict: `pip check`, and the resolver after an installation.
PIP = (
    re.compile(r"^(?P<who>[\w.-]+) (?P<version>\S+) requires (?P<what>[\w.-]+), which is not installed\.?"),
    re.compile(r"^(?P<who>[\w.-]+) (?P<version>\S+) has requirement (?P<what>.+?), but you have (?P<have>.+?)\.?$"),
    re.compile(
        r"^(?P<who>[\w.-]+) (?P<version>\S+) requires (?P<what>.+?), but you have (?P<have>.+?) which is incompatible"
    ),
    re.compile(r"^(?P<who>[\w.-]+) (?P<version>\S+) is not supported on this platform"),
)
NO_CONFLICT = "No broken requirements found."


@dataclass(slots=True)
class Installed:
    """A package of a folder and the line that told of it."""

    name: str
    version: str
    requires: list[str]
    folder: str
    python: str
    line: Line


@dataclass(slots=True)
class Listing:
    """One answer of the probe. `problems` are facts (key below `package.`, value, line) of the folders themselves."""

    packages: list[Installed] = field(default_factory=list)
    pythons: dict[str, str] = field(default_factory=dict)  # folder -> version of its interpreter
    problems: list[tuple[str, str, Line]] = field(default_factory=list)


def normal(name: str) -> str:
    """The name under which packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listing(text: str) -> Listing:
    """What the probe printed."""
    found = Listing()
    for line in output_lines(text):
        try:
            said: dict[str, Any] = json.loads(line.data)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        if {"name", "version", "requires", "folder", "python"} <= set(said):
            where = str(said["folder"])
            requires = [str(r) for r in said["requires"]] if isinstance(said["requires"], list) else []
            package = Installed(str(said["name"]), str(said["version"]), requires, where, str(said["python"]), line)
            found.packages.append(package)
        elif "remains" in said:
            found.problems.append(("remains", f"{said['remains']} in {said.get('folder')}", line))
        elif "broken" in said:
            found.problems.append(("broken", f"{said['broken']} in {said.get('folder')} has no metadata", line))
        elif "folder" in said:
            found.pythons[str(said["folder"])] = str(said.get("python") or "")
    return found


def conflicts(found: Listing) -> Iterator[tuple[str, str, Line]]:
    """Duplicates, requirements that are not met, and packages for another Python.

    Yields:
        key below `package.`, the conflict in words, the line of the package that has the requirement.
    """
    yield from found.problems
    by_name: dict[str, list[Installed]] = {}
    for package in found.packages:
        by_name.setdefault(normal(package.name), []).append(package)
    for same in by_name.values():
        here = [p for p in same if p.folder == same[0].folder]
        if len({p.version for p in here}) > 1:
            both = " and ".join(p.version for p in here)
            yield "duplicate", f"{here[0].name} is installed as {both} in one folder", here[-1].line
    for package in found.packages:
        yield from _unmet(package, by_name, found.pythons.get(package.folder, ""))


def _unmet(package: Installed, by_name: dict[str, list[Installed]], python: str) -> Iterator[tuple[str, str, Line]]:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    who = f"{package.name} {package.version}"
    try:
        if python and package.python and f"{python}.99" not in SpecifierSet(package.python):
            yield "other_python", f"{who} requires Python {package.python}, this is {python}", package.line
    except InvalidSpecifier:
        pass
    machine = {"python_version": python, "python_full_version": f"{python}.99"} if python else {}
    for text in package.requires:
        try:
            wanted = Requirement(text)
            applies = wanted.marker is None or wanted.marker.evaluate({**machine, "extra": ""})
        except (InvalidRequirement, ValueError, KeyError):
            continue
        if not applies:
            continue
        have = by_name.get(normal(wanted.name), [])
        if not have:
            yield "missing", f"{who} requires {wanted.name}{wanted.specifier}, which is not installed", package.line
        elif not any(_meets(p.version, wanted.specifier) for p in have):
            is_now = f"installed is {have[0].version}"
            yield "conflict", f"{who} requires {wanted.name}{wanted.specifier}, {is_now}", package.line


def _meets(version: str, specifier: Any) -> bool:
    from packaging.version import InvalidVersion

    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return True  # cannot be judged: no accusation


def told_by_pip(text: str) -> tuple[str, str] | None:
    """The conflict that a line of pip states, as key below `package.` and the line's words."""
    head = text.strip()[:400]
    for pattern in PIP:
        if pattern.match(head):
            return ("missing" if "not installed" in head else "conflict"), head.rstrip(".")
    return None
