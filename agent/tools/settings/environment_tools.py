"""Versions and machine of the run, and what is known not to go together."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ...core.errors import ToolError
from ...core.shell import Completed
from ...core.types import Evidence, ToolResult
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ...reading.settings.compatibility import conflicts
from ...reading.settings.compatibility import conflicts as known_conflicts
from ...reading.settings.settings import read_settings
from ...reading.settings.versions import (
    NO_CONFLICT,
    Environment,
    Listing,
    Version,
    listing,
    normal,
    package_name,
    read_environment,
    release,
    told_by_pip,
)
from ...reading.settings.versions import conflicts as requirement_conflicts
from ..tool import clean, failed, few, finding, not_applicable, tool

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
    for v in few(reading.versions[:ALL], SAME, lambda v: (v.package, v.version)):
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


# ----------
# Installed packages against what they require of each other, and against what is known not to go together.

EACH, SECONDS = 12, 20.0
WEAK = {"missing", "remains", "broken", "checked"}  # often optional, or left over without harm
FILE_LIMIT = 1 << 20
_PIP_LINE = re.compile(r"\brequires? |\brequirement ", re.IGNORECASE)


@tool(
    emits=("package.conflict", "package.missing", "package.duplicate", "package.other_python", "package.remains",
           "package.broken", "package.known_conflict", "package.checked"),
    live=True,
)  # fmt: skip
def package_conflicts(
    ws: Workspace,
    environment: Annotated[
        str, Field(description="virtual environment, site-packages folder or interpreter; else the processes'")
    ] = "",
) -> ToolResult:
    """Requirements between packages that are not met, packages installed twice, and combinations known to fail.

    Use when an import fails, an attribute is missing or versions are suspected. Reads METADATA of the environment you
    name, or of the job's processes; starts no interpreter. Reads recorded `pip check`, pip's warnings and version
    lists among the run's files too.
    """
    evidence = [*_recorded(ws), *_known(ws)]
    why = "no version list or pip output among the run's files; name an environment or a process"
    if environment or (ws.live and ws.pids):
        if environment and not Path(environment).expanduser().exists():
            raise ToolError(f"no such path: {environment}", "name a virtual environment or a site-packages folder")
        told = [str(Path(environment).expanduser())] if environment else [str(p) for p in ws.pids]
        done = ws.shell([sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.packages", *told], SECONDS)
        found = listing(done.stdout)
        if not found.packages:
            return failed(f"no packages found in {', '.join(told)}")
        evidence += _installed(ws, done, found)
    if not evidence and not read_environment(ws).versions:
        return not_applicable(why)
    text = "\n".join(f"{f'{e.file}:{e.line}' if e.file else 'installed'} {e.key} = {e.value}" for e in evidence)
    strong = [e for e in evidence if e.key.split(".")[1] not in WEAK]
    weak = [e for e in evidence if e.key in {"package.missing", "package.remains", "package.broken"}]
    if strong or weak:
        rest = f"; {len(weak)} missing or left over" if strong and weak else ""
        return finding(f"{(strong or weak)[0].value}{rest}", evidence, text)
    return clean("no conflict between packages", evidence, text)


def _recorded(ws: Workspace) -> Iterator[Evidence]:
    shown = 0
    for file in ws.by_role("log", "environment", "capture"):
        if file.good or file.size > FILE_LIMIT:
            continue
        for line in ws.lines(file):
            if NO_CONFLICT.encode() in line.data:
                yield ws.cite(file, line, "package.checked", True)
            elif shown < EACH and _PIP_LINE.search(line.text[:400]) and (found := told_by_pip(line.text)):
                shown += 1
                yield ws.cite(file, line, f"package.{found[0]}", found[1])


def _known(ws: Workspace) -> Iterator[Evidence]:
    for c in list(known_conflicts(read_environment(ws), read_settings(ws)))[:EACH]:
        for file, line in c.places[:2]:
            yield ws.cite(file, line, "package.known_conflict", f"{c.id}: {c.says}")


def _installed(ws: Workspace, done: Completed, found: Listing) -> Iterator[Evidence]:
    first = found.packages[0].line
    yield ws.answered(done, "package.checked", len(found.packages), first.text)
    for key, says, line in few(requirement_conflicts(found), EACH, lambda x: x[0]):
        yield ws.answered(done, f"package.{key}", says, line.text)
    file = RunFile("installed", Path("/"), "environment", 0)
    here = Environment([Version(_known_name(p.name), p.version, file, p.line) for p in found.packages])
    for python in sorted({p for p in found.pythons.values() if p}):
        here.versions.append(Version("python", python, file, first))
    for c in list(known_conflicts(here, read_settings(ws)))[:EACH]:
        for _, line in c.places[:2]:
            yield ws.answered(done, "package.known_conflict", f"{c.id}: {c.says}", line.text)


def _known_name(name: str) -> str:
    return package_name(normal(name).replace("-", "_"))
