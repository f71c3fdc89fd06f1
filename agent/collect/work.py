"""What goes into a bundle, part by part: the diagnosis, the machine, what the readers make of the run, its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import ParseError
from . import machine as this_machine
from .cleaning import Cleaning
from .contents import Contents
from .context import Context
from .focus import Focus, focus
from .pieces import NotText, excerpt
from .plan import Plan, Portion, plan
from .report_copy import portable

if TYPE_CHECKING:
    from ..reading.failures import Failures
    from ..reading.files import RunFile
    from ..report import Report
    from ..workspace import Workspace

OWN_REPORTS = ("doctor-report.json", "doctor-report.md")
REPORT_BYTES = 4 << 20
EVENTS = 5
Tell = Callable[[str], None]


@dataclass(slots=True)
class Work:
    """One bundle under way.

    Attributes:
        files: those of the run, without bundles made before.
        readable: whether the readers may go through all of it: they have for the diagnosis, or it is not too long.
    """

    ws: Workspace
    contents: Contents
    tell: Tell
    files: list[RunFile]
    diagnosis: Report | None
    readable: bool = True
    context: Context = field(init=False)

    def __post_init__(self) -> None:
        self.context = Context(self.ws, self.cleaning)

    @property
    def cleaning(self) -> Cleaning:
        return self.contents.cleaning

    def report(self) -> None:
        """The diagnosis, and reports that were found in the run's folder."""
        if self.diagnosis is not None:
            shown = portable(self.diagnosis, self.ws, self.context)
            self.contents.add("report/report.json", shown.to_json() + "\n")
            self.contents.used += len(self.markdown() or b"")
        for root in self.ws.roots:
            for name in OWN_REPORTS:
                path = (root if root.is_dir() else root.parent) / name
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= REPORT_BYTES:
                    self.contents.add(f"report/found/{name}", path.read_text(errors="replace"))

    def markdown(self) -> bytes | None:
        """The diagnosis for people; made when all secrets are known, as markdown's escapes would hide them."""
        from ..markdown import as_markdown

        if self.diagnosis is None:
            return None
        return (as_markdown(portable(self.diagnosis, self.ws, self.context)) + "\n").encode("utf-8", "replace")

    def machine(self, asked: Workspace) -> list[dict[str, Any]]:
        """What this machine answers; the rows of the manifest."""
        rows = []
        for name, result in this_machine.asked(asked, self.tell):
            self.contents.add_data(f"tools/{name}.json", result)
            rows.append(self.cleaning.data({k: result[k] for k in ("tool", "outcome", "summary")}))
        self.contents.add("machine/variables.txt", this_machine.variables())
        self.contents.add("machine/packages.txt", this_machine.packages(asked))
        return rows

    def facts(self) -> None:
        """Traces, settings, versions and checkpoints as the readers have them."""
        from . import facts
        from .traces import traces_text

        if not self.readable:
            return
        self.tell("traces and settings")
        if text := traces_text(self.failures(), self.context):
            self.contents.add("traces.txt", text)
        self.contents.add_data("settings.json", facts.settings(self.ws, self.context))
        self.contents.add_data("environment.json", facts.environment(self.ws))
        if found := facts.saves(self.ws):
            self.contents.add_data("checkpoints.json", found)

    def failures(self) -> Failures:
        from ..reading.failures import failures

        return failures(self.ws)

    def run(self) -> int:
        """The files themselves, dumps and curves; how many files are not even listed."""
        self.tell("the run's files")
        room = self.contents.room
        dumps = self._dumps(room // 4)
        where: Focus = focus(self.diagnosis, self.failures() if self.readable else None)
        rest = [f for f in self.files if f.name not in dumps]
        made = plan(rest, where, max(0, self.contents.room - min(room // 8, 8 << 20)))
        whole = {p.file.name for p in made.portions if self._portion(p)}
        left = self._series(whole, made)
        for file, why in left:
            self.contents.row(file, "no", why)
        self.contents.files.sort(key=lambda row: row["name"])
        return made.more

    def _portion(self, portion: Portion) -> bool:
        """Put a part of a file in; whether it is there whole."""
        file = portion.file
        try:
            found = excerpt(file, self.cleaning, portion.room, portion.focus)
        except ParseError as e:
            self.contents.row(file, "no", str(e))
            return False
        except NotText:
            self.contents.row(file, "no", "not text: secrets could not be taken out")
            return False
        member = self.contents.add(f"files/{file.name}", found.text)
        if member is None:
            self.contents.row(file, "no", "the bundle is full")
            return False
        nuls = f"{found.nuls} NUL bytes taken out" if found.nuls else ""
        part = "" if found.whole else f"{found.kept} of {found.size} bytes"
        why = "; ".join(t for t in (part, nuls) if t)
        self.contents.row(file, "whole" if found.whole else "part", why, member)
        return found.whole

    def _dumps(self, room: int) -> set[str]:
        """Flight-recorder dumps as JSON; the names of those that are dealt with."""
        from .flight_text import as_json, dumps

        found = dumps(self.ws) if self.readable else []
        for number, file in enumerate(found):
            try:
                text, whole = as_json(self.ws, file, room // (len(found) - number))
            except ParseError as e:
                self.contents.row(file, "no", str(e))
                continue
            room -= len(text)
            member = self.contents.add(f"files/{file.name}", text)
            why = "written as JSON" if whole else "written as JSON, without older entries or their stacks"
            self.contents.row(file, "converted" if member else "no", why if member else "the bundle is full", member)
        return {f.name for f in found}

    def _series(self, whole: set[str], made: Plan) -> list[tuple[RunFile, str]]:
        """Tables of curves; the files that are still left out."""
        from .series_csv import by_file, stands_in, table

        if not self.readable:
            return made.left
        try:
            tables, events = by_file(self.ws), self._events()
        except ParseError as e:  # a file went away while the curves were read
            self.contents.out.append({"member": "series", "why": str(e)})
            return made.left
        files = {f.name: f for f in self.files}
        standing = [n for n in tables if n in files and n not in whole and stands_in(files[n], n in whole)]
        replaced = set()
        for number, name in enumerate(standing, 1):
            folder = name.rpartition("/")[0]
            member = self.contents.add(f"files/{folder}/series-{number}.csv", table(tables[name], events))
            if member:
                replaced.add(name)
                self.contents.files = [r for r in self.contents.files if r["name"] != name]
                self.contents.row(files[name], "converted", "its curves as a table", member)
        for name in tables:
            if name in files and name not in replaced:
                self.contents.add(f"series/{name}.csv", table(tables[name], events))
        return [(f, why) for f, why in made.left if f.name not in replaced]

    def _events(self) -> list[int]:
        """Steps at which something happened."""
        if self.diagnosis is None:
            return []
        first = self.diagnosis.root_cause.first_failure.step
        steps = [first, *(e.step for e in self.diagnosis.evidence)]
        return list(dict.fromkeys(s for s in steps if s is not None))[:EVENTS]
