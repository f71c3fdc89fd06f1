"""What goes into a bundle, part by part: the diagnosis, the machine, what the readers make of the run, its files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import ParseError
from ...reading.run.files import RunFile
from . import bundle_parts
from .bundle_parts import Contents
from .cleaning import Cleaning
from .pieces import Context, Focus, NotText, Span, excerpt, focus
from .report_copy import portable

if TYPE_CHECKING:
    from ...core.report import Report
    from ...reading.logs.failures import Failures
    from ...reading.run.workspace import Workspace


# ----------
# Which files of a run go into a bundle, and how much of each, so that the whole keeps to its bound.


PART = 1 << 20  # bytes kept from the start and from the end of a long file, where there is room
LEAST = 2 << 10  # of a file that is kept at all
FILES = 5000
ROLES = ("config", "environment", "capture", "log", "metrics", "code", "note")
FIRST = ("config", "environment", "capture")  # short and telling: up to half of the room before the others
SMALL = 64 << 10  # of a checkpoint's short texts
_PACKED = re.compile(r"\.(?:gz|zst|bz2|xz)$", re.IGNORECASE)
_UNPACKED = 30  # times its size that a packed file is taken to have
_OWN = re.compile(r"(?:^|/)(?:doctor-bundle-[\w-]+\.tar\.gz|\.doctor-bundle-\w+)$")


@dataclass(frozen=True, slots=True)
class Portion:
    """What is to be read of a file: `room` bytes of its ends, and stretches in focus."""

    file: RunFile
    room: int
    focus: list[Span] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """Portions in order; `left` are files that stay away, with why; `more`: how many are not even listed."""

    portions: list[Portion] = field(default_factory=list)
    left: list[tuple[RunFile, str]] = field(default_factory=list)
    more: int = 0


def plan(files: Iterable[RunFile], focus: Focus, room: int) -> Plan:
    """Share the room: what the report cites, what is short and telling, then a fair part of everything else."""
    out = Plan()
    wanted, cited = [], []
    for file in files:
        if file.role in ROLES or _is_note(file):
            wanted.append(file)
        elif file.name in focus:
            cited.append(file)
        else:
            out.left.append((file, f"{file.role} is not collected"))
    wanted.sort(key=lambda f: (f.name not in focus, ROLES.index(f.role) if f.role in ROLES else len(ROLES)))
    out.more = max(0, len(wanted) - FILES) + max(0, len(out.left) - FILES)
    wanted, out.left = wanted[:FILES], out.left[:FILES]
    windows = _affordable(wanted, focus, room // 4)
    rest = room - sum(b - a for spans in windows.values() for a, b in spans)
    early = [f for f in wanted if f.role in FIRST]
    shares = _shares(early, rest // 2)
    shares |= _shares([f for f in wanted if f.role not in FIRST], rest - sum(shares.values()))
    for file in wanted:
        if file.name in shares or file.name in windows:
            out.portions.append(Portion(file, shares.get(file.name, 0), windows.get(file.name, [])))
        else:
            out.left.append((file, "the bundle is full"))
    # of files that are not collected (data, for one), no more than the lines that the report shows anyway
    out.portions += [Portion(f, 0, [_line_itself(s) for s in focus[f.name]]) for f in cited]
    return out


def is_own(name: str, head: bytes) -> bool:
    """Whether a file is a bundle that was made before, which must not go into the next."""
    return bool(_OWN.search(name)) or (head[257:262] == b"ustar" and b"traindoctor.bundle/" in head)


def _is_note(file: RunFile) -> bool:
    """The short texts of a checkpoint: trackers, indices, state as JSON."""
    return file.role == "checkpoint" and file.size <= SMALL and file.path.suffix.lower() in ("", ".txt", ".json")


def _line_itself(span: Span) -> Span:
    from .pieces import CITED

    start, end = span
    return (start + CITED, end - CITED) if end - start > 2 * CITED else span


def _affordable(files: list[RunFile], focus: Focus, room: int) -> Focus:
    out: Focus = {}
    for file in files:
        size = file.size * (_UNPACKED if _PACKED.search(file.name) else 1)
        for start, end in focus.get(file.name, []):
            middle, end = (start + end) // 2, min(end, size)
            if end - start > room:  # the inner part of it
                start, end = max(start, middle - room // 2), min(end, middle + room // 2)
            if end - start < LEAST and size > LEAST:
                continue
            room -= end - start
            out.setdefault(file.name, []).append((start, end))
    return out


def _need(file: RunFile) -> int:
    return min(2 * PART, file.size * _UNPACKED if _PACKED.search(file.name) else file.size)


def _shares(files: list[RunFile], room: int) -> dict[str, int]:
    """Bytes for each file: short ones whole, what they leave over evenly among the long; some none at all."""
    if files and room // len(files) < LEAST:
        files = files[: max(0, room // LEAST)]
    out: dict[str, int] = {}
    for number, file in enumerate(sorted(files, key=_need)):
        out[file.name] = min(_need(file), room // (len(files) - number))
        room -= out[file.name]
    return out


# ----------

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
        from ..render import as_markdown

        if self.diagnosis is None:
            return None
        return (as_markdown(portable(self.diagnosis, self.ws, self.context)) + "\n").encode("utf-8", "replace")

    def machine(self, asked: Workspace) -> list[dict[str, Any]]:
        """What this machine answers; the rows of the manifest."""
        rows = []
        for name, result in bundle_parts.asked(asked, self.tell):
            self.contents.add_data(f"tools/{name}.json", result)
            rows.append(self.cleaning.data({k: result[k] for k in ("tool", "outcome", "summary")}))
        self.contents.add("machine/variables.txt", bundle_parts.variables())
        self.contents.add("machine/packages.txt", bundle_parts.packages(asked))
        return rows

    def facts(self) -> None:
        """Traces, settings, versions and checkpoints as the readers have them."""
        from . import bundle_parts
        from .pieces import traces_text

        if not self.readable:
            return
        self.tell("traces and settings")
        if text := traces_text(self.failures(), self.context):
            self.contents.add("traces.txt", text)
        self.contents.add_data("settings.json", bundle_parts.settings(self.ws, self.context))
        self.contents.add_data("environment.json", bundle_parts.environment(self.ws))
        if found := bundle_parts.saves(self.ws):
            self.contents.add_data("checkpoints.json", found)

    def failures(self) -> Failures:
        from ...reading.logs.failures import failures

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
        from .bundle_parts import as_json, dumps

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
        from .bundle_parts import by_file, stands_in, table

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
