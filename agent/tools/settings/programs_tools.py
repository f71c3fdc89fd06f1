"""What ran: programs, commands, configs, and the part that each file plays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ...core.types import ToolResult
from ...reading.run.program.library_messages import catalogue
from ...reading.run.what_ran import Program, Ran
from ...reading.run.workspace import Workspace
from ...reading.scan.library_notices import printers
from ..tool import clean, not_applicable, tool

SHOWN = 12  # names of one kind


@tool(emits=())
def what_ran(ws: Workspace) -> ToolResult:
    """Tell what ran here, and what the files are that evidence may not come from.

    Use first where a folder holds a whole project: which program printed which log, the commands and configs that are
    known, what it imports, data, outputs, and the bystanders (pages, tests, other programs and their configs), each
    with how it is known. Bystanders can be searched and read; they are never evidence.
    """
    ran = ws.ran
    if not ran.programs:
        told = "no program is known to have run: no source here prints these logs, and no command names one"
        return not_applicable(told) if not ws.everything else clean(told, text="\n".join([told, *_parts(ws, ran)]))
    names = ", ".join(p.file.name for p in ran.programs)
    aside = sum(part == "bystander" for part, _ in ran.parts.values())
    summary = f"{names} ran; {aside} of {len(ws.everything)} files left aside"
    rows = [row for p in ran.programs for row in _program(p)] + list(_lines(ws, ran))
    return clean(summary, text="\n".join([summary, *rows, *_parts(ws, ran)]))


def _program(p: Program) -> Iterator[str]:
    yield f"program {p.file.name}: {p.how}"
    for c in dict.fromkeys((c.file, c.line, c.text) for c in p.commands):
        yield f"  command ({c[0]}:{c[1]}): {c[2]}"
    for name, how in list(p.configs.items())[:SHOWN]:
        yield f"  config {name}: {how}"
    if p.reached[1:]:
        yield f"  imports {_listed(p.reached[1:])}"
    if p.logs:
        yield f"  printed {_listed(p.logs)}"


def _lines(ws: Workspace, ran: Ran) -> Iterator[str]:
    """How many lines of each log a statement of the program explains, how many a message of a library."""
    for log in (f for f in ws.files if any(f.name in p.logs for p in ran.programs)):
        found = printers(ws, log)
        own, none = found.pop("", 0), found.pop("?", 0)
        by = ", ".join(f"{name} {count}" for name, count in found.most_common(SHOWN))
        libraries = f"{found.total()} by messages of libraries" + (f" ({by})" if by else "")
        yield f"lines of {log.name}: {own} by statements of the program, {libraries}, {none} by none"
    if (trouble := catalogue().trouble) and ran.programs:
        yield f"messages of libraries were not all read: {trouble}"


def _parts(ws: Workspace, ran: Ran) -> Iterator[str]:
    """The files of each part, those of one reason together."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for f in ws.everything:
        part, why = ran.parts.get(f.name, ("unknown", "nothing tells"))
        if part not in ("program", "config"):
            found[part, why].append(f.name)
    for (part, why), names in sorted(found.items()):
        yield f"{part} ({why}): {_listed(names)}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
