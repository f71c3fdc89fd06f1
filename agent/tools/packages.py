"""Installed packages against what they require of each other, and against what is known not to go together."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..errors import ToolError
from ..reading.compatibility import conflicts as known_conflicts
from ..reading.files import RunFile
from ..reading.packages_installed import NO_CONFLICT, Listing, conflicts, listing, normal, told_by_pip
from ..reading.settings import read_settings
from ..reading.versions import Environment, Version, package_name, read_environment
from ..shell import Completed
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

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
        done = ws.shell([sys.executable, "-I", "-m", "traindoctor.agent.probes.packages", *told], SECONDS)
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
    shown: dict[str, int] = {}
    for key, says, line in conflicts(found):
        shown[key] = shown.get(key, 0) + 1
        if shown[key] <= EACH:
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
