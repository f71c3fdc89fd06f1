"""Versions and machine of the run, and what is known not to go together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..reading.compatibility import conflicts
from ..reading.settings import read_settings
from ..reading.versions import Environment, Version, read_environment, release
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SAME, ALL = 4, 300  # lines told of one version, of all
# Packages whose versions differ on purpose (driver against runtime) or between machines of a table.
_MAY_MIX = {"cuda", "cuda_driver", "cuda_toolkit", "gcc", "python", "kernel", "glibc"}


@tool(emits=("env.*",), recall=True)
def environment(ws: Workspace) -> ToolResult:
    """Versions of packages, drivers, CUDA, NCCL and Python, GPU names, and known conflicts between them.

    Reads pip and conda lists, lock files, collect_env output, banners in logs, paths in tracebacks and tables of
    trials. Use when an import fails, a kernel image is missing, an API changed, or a defect of one version is
    suspected.
    """
    reading = read_environment(ws)
    if not reading.versions and not reading.facts:
        return not_applicable("no file tells a version or a machine")
    evidence = [*_versions(ws, reading), *_machine(ws, reading)]
    found = list(_conflicts(ws, reading))
    mixed = list(_mixed(ws, reading))
    packages = sorted({v.package for v in reading.versions})
    summary = f"{len(packages)} versions told"
    if found:
        summary += f"; {len({str(e.value) for e in found})} known conflicts: {found[0].value}"
    if mixed:
        summary += f"; {len(mixed)} packages in two versions"
    rows = [f"{v.package} {v.version}  ({v.file.name}:{v.line.number})" for v in reading.versions[:120]]
    rows += [f"{f.key}: {f.value}  ({f.file.name}:{f.line.number})" for f in reading.facts[:40]]
    text = "\n".join([summary, *(str(e.value) for e in found), *rows])
    make = finding if found or mixed else clean
    return make(summary, [*found, *mixed, *evidence], text)


def _versions(ws: Workspace, reading: Environment) -> Iterator[Evidence]:
    told: dict[tuple[str, str], int] = defaultdict(int)
    for v in reading.versions[:ALL]:
        told[v.package, v.version] += 1
        if told[v.package, v.version] <= SAME:
            yield ws.cite(v.file, v.line, f"env.version.{v.package}", v.version)


def _machine(ws: Workspace, reading: Environment) -> Iterator[Evidence]:
    told: set[tuple[str, str]] = set()
    for f in reading.facts:
        if (f.key, str(f.value)) not in told:
            told.add((f.key, str(f.value)))
            yield ws.cite(f.file, f.line, f"env.{f.key}", f.value)


def _conflicts(ws: Workspace, reading: Environment) -> Iterator[Evidence]:
    """Each conflict once for every line it stands on, with the same text, so that both versions are cited."""
    for c in conflicts(reading, read_settings(ws)):
        text = f"{c.id}: {c.says}" + (f" (remedy: {c.fix})" if c.fix else "")
        for file, line in c.places[:6]:
            yield ws.cite(file, line, "env.package_conflict", text)


def _mixed(ws: Workspace, reading: Environment) -> Iterator[Evidence]:
    """One package told in two versions by the same run. Lists of trials differ on purpose."""
    by_package: dict[tuple[str, str], list[Version]] = defaultdict(list)
    for v in reading.versions:
        if not v.row and v.package not in _MAY_MIX and len(release(v.version)) > 1:
            by_package[v.file.run, v.package].append(v)
    for (_run, package), versions in by_package.items():
        first = versions[0]
        width = min(len(release(v.version)) for v in versions)
        other = next((v for v in versions if release(v.version)[:width] != release(first.version)[:width]), None)
        if other:
            text = f"{package} {first.version} and {other.version}"
            for v in (first, other):
                yield ws.cite(v.file, v.line, "env.version_mixed", text)
