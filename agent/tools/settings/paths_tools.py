"""A path that is not there: where it was written, and where a file of its name lies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from ...core.types import Evidence, ToolResult
from ...reading.logs.failures import failures
from ...reading.logs.tracebacks import Failure
from ...reading.run.workspace import Workspace
from ..tool import clean, finding, not_applicable, tool

PATHS, FILES, BYTES = 4, 200, 400_000  # paths traced, files searched, bytes of one
_PATH = r"[^\s'\"`:;,()]*[/\\][^\s'\"`:;,()]+"
_MISSING = re.compile(
    r"(?i)(?:no such file or directory|not a directory|permission denied|file (?:does not exist|not found)"
    r"|cannot (?:open|find|access)|does not exist|can't find|couldn't find)[^'\"`/]{0,60}[:\s(]b?['\"`]?"
    rf"(?P<path>{_PATH}|[\w\-.]+\.\w{{1,8}})"
)
_BEFORE = re.compile(  # "path: No such file or directory"
    rf"(?i)['\"`]?(?P<path>{_PATH})['\"`]?(?:: | )"
    r"(?:no such file or directory|permission denied|does not exist|not found)"
)
_INSTALLED = re.compile(r"site-packages|dist-packages|/lib/python|\.so\b|\.py$")
_ON_THE_HUB = re.compile(r"(?i)hugging ?face|https?://|\bhub\b|\brepo(?:sitory)?\b")  # a name there is no path
_NAMED = r"(?P<name>[\w.\-]+)['\"]?\s*(?:[:=]|,\s*(?:type\s*=\s*\w+,\s*)?default\s*=)\s*[rbuf]*['\"]?$"


@tool(emits=("path.written", "path.elsewhere"))
def trace_missing_paths(ws: Workspace) -> ToolResult:
    """Find where a path that a failure names was written, and whether a file of its name lies elsewhere in the run.

    Use where a file or folder was not found or may not be read: the line of the program, config or launch script that
    holds the path (or the folder it begins with), and files of the same name in other folders.
    """
    wanted = dict(reversed(list(_wanted(ws))))
    if not wanted:
        return not_applicable("no failure names a path")
    paths = list(reversed(wanted))[:PATHS]
    evidence = [e for path in paths for e in (*_written(ws, path), *_elsewhere(ws, path, wanted[path]))]
    if not evidence:
        return clean(f"{paths[0]}: written nowhere in the run's files")
    text = "\n".join(f"{e.key} {e.value}: {e.file}:{e.line}" for e in evidence)
    return finding(f"{paths[0]}: {len(evidence)} places", evidence, text)


def _wanted(ws: Workspace) -> Iterator[tuple[str, Failure]]:
    """Paths that failures name as not there, with the failure, those of installed packages apart."""
    for unit in failures(ws).units[:20]:
        for text in (unit.message, *(t for _, t in unit.details)):
            m = _MISSING.search(text) or _BEFORE.search(text)
            path = m["path"].rstrip(".").replace("\\", "/") if m and not _ON_THE_HUB.search(text) else ""
            if len(path) > 3 and not _INSTALLED.search(path):
                yield path, unit


def _written(ws: Workspace, path: str) -> Iterator[Evidence]:
    """The line that holds the path, or else the longest of the folders that it begins with."""
    ran = {n for p in ws.ran.programs for n in (*p.reached, *p.configs, *(c.file for c in p.commands))}
    sources = [f for f in ws.files if f.role in ("code", "config") or (f.name in ran and f.role != "log")]
    sources = sorted(sources, key=lambda f: f.name not in ran)[:FILES]
    for part in _parts(path):
        form = re.compile(rf"(?<![\w./~\-]){re.escape(part)}(?=/?(?:['\"\s,;)}}\]]|/\w|$))")
        for file in (f for f in sources if f.size <= BYTES and part.encode() in ws.read(f, BYTES)):
            for line in ws.lines(file):
                if (m := form.search(line.text)) is not None and not line.text.lstrip().startswith("#"):
                    named = re.search(_NAMED, line.text[: m.start()])
                    yield ws.cite(file, line, "path.written", named["name"].lstrip("-") if named else part)
                    return


def _parts(path: str) -> list[str]:
    """A path, then the folders above it that still tell something: of one name alone (`data`) any word might."""
    folders = [f for f in PurePosixPath(path).parents if sum(p not in ("/", ".") for p in f.parts) > 1]
    return [path, *map(str, folders)]


def _elsewhere(ws: Workspace, path: str, unit: Failure) -> Iterator[Evidence]:
    """Files of the same name in another folder of the run, at the line that misses it."""
    name = PurePosixPath(path).name
    here = [f for f in ws.everything if f.name.rsplit("/", 1)[-1] == name and f.name != path]
    if path.startswith("/"):  # it may be of another machine, and the same place
        here = [f for f in here if not path.endswith(f"/{f.name}")]
    if name and "." in name and 0 < len(here) <= 2:
        for f in here:
            yield ws.cite(unit.file, unit.line, "path.elsewhere", f.name)
