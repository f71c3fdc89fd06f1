"""Lines of trouble: what is told at once, and what only matters when no progress follows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..reading.anchors import is_harmless
from ..reading.failure import Read
from ..reading.files import Line, RunFile
from ..reading.kernel_log import Xid, xid_of
from ..reading.lines import strip
from ..reading.notes import notes
from ..reading.unit import ALONE
from .kinds import Found

# One of these stands in every line that is looked at closely.
_WORTH = re.compile(
    rb"Traceback \(most recent|Xid|fallen off the bus|OVERFLOW|[Oo]verflow|loss scale|No space left|quota exceeded|"
    rb"[Ss]ave|[Ss]aving|[Cc]heckpoint|exit ?code|exitcode|return code|exit status|exited with|ExitCode=|Killed|OOM|"
    rb"oom[-_]kill|Out of memory: |[Ww]atchdog|ChildFailedError|CANCELLED|NODE.FAIL|Node failure|SIG[A-Z]{3,4}\b|"
    rb"[Ss]egmentation fault|Fatal Python error|core dumped|terminate called|[Ss]ignal \d|"
    rb"\w(?:Error|Exception|Interrupt)\b"
)
_SAVE = re.compile(
    r"(?i)(?:fail(?:ed|ure)?|error|could not|cannot|unable to)\b.{0,40}\b(?:sav(?:e|ing)|writ(?:e|ing)|persist\w*)\b"
    r".{0,60}(?:checkpoint|ckpt|state|model|shard|weights)"
    r"|(?:checkpoint|ckpt)\b.{0,60}\b(?:sav(?:e|ing)|write|upload)\b.{0,20}\b(?:failed|error)\b"
    r"|\b(?:checkpoint|ckpt)\w* (?:save |saving |writing |upload )?failed\b"
    r"|PytorchStreamWriter failed writing|Error while serializing|No space left on device|[Dd]isk quota exceeded"
    r"|SafetensorError: .{0,80}(?:I/?O|space)"
)
_LOADS = re.compile(r"(?i)\bload(?:ing|ed)?\b|\bresum|\brestor")
_FLOOR = re.compile(
    r"(?i)loss scale already at minimum|minimum loss scale reached|loss scale .{0,20}(?:at|reached) (?:its )?min"
)
_SKIPS = re.compile(
    r"OVERFLOW!|[Gg]radient overflow|overflow.{0,60}[Ss]kipping|[Ss]kipping step.{0,40}(?:overflow|inf|nan)"
)
_DEADLY = frozenset(("watchdog", "launcher", "scheduler"))
_SIGNALS = frozenset(("SIGKILL", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTERM"))


@dataclass(slots=True)
class Pending:
    """What may have ended the run in this file: told once no progress follows it."""

    found: Found
    line: int | None
    since: float


class Trouble:
    """The lines of one file that are no metrics."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self.pending: Pending | None = None
        self.told: Pending | None = None  # the one that was
        self._trace: Pending | None = None  # a traceback whose exception has not come yet

    def progressed(self) -> Iterator[Found]:
        """A step went on: what was pending was survived."""
        held, self.pending, self._trace = self.pending, None, None
        if held is not None and held.found.kind == "traceback":
            text = f"{held.found.text}; the run goes on"
            yield Found("traceback", text, severity="notice", line=held.line, rank=held.found.rank)

    def take(self, data: bytes, number: int | None, rank: int | None, now: float) -> Iterator[Found]:
        """One line: what is told of it at once. What is pending is looked at by whoever follows the file."""
        if self._trace is not None and self._exception(data):
            return
        if _WORTH.search(data) is None:
            return
        stripped = strip(data[:4096].decode(errors="replace"))
        body = stripped.body
        if rank is None:
            rank = stripped.rank
        if body.startswith("Traceback (most recent call last)"):
            found = Found("traceback", "a traceback", line=number, rank=rank)
            self._trace = Pending(found, number, now)
            if self.pending is None or self.pending.found.kind != "traceback":
                self.pending = self._trace
            return
        if is_harmless(body):
            return
        yield from self._at_once(body, number, rank)
        self._deadly(data, stripped, number, rank, now)

    def _exception(self, data: bytes) -> bool:
        """Whether a line belongs to the traceback that is open; the exception's own line closes it."""
        held = self._trace
        body = strip(data[:4096].decode(errors="replace")).body
        if held is None or body[:1] in (" ", "\t", "") or body.startswith("Traceback (most"):
            return body[:1] in (" ", "\t")
        if m := _EXCEPTION.match(body):
            text = f"{m['type']}: {m['message'] or ''}".rstrip(": ")
            told = Found("traceback", text[:300], line=held.line, rank=held.found.rank)
            self._trace = None
            if self.pending is held:
                self.pending = Pending(told, held.line, held.since)
        return False  # `No space left on device` stands in such a line too

    def _at_once(self, body: str, number: int | None, rank: int | None) -> Iterator[Found]:
        if ("Xid" in body or "bus" in body) and (xid := xid_of(body)) is not None:
            yield Found("xid", xid_text(xid, body), line=number, rank=rank)
        elif _FLOOR.search(body):
            yield Found("scale_floor", body.strip()[:300], line=number, rank=rank)
        elif _SKIPS.search(body):
            yield Found("steps_skipped", "", line=number, rank=rank)
        elif _SAVE.search(body) and not _LOADS.search(body):
            yield Found("checkpoint_failed", body.strip()[:300], line=number, rank=rank)

    def _deadly(self, data: bytes, stripped: Any, number: int | None, rank: int | None, now: float) -> None:
        if self.pending is not None:
            return
        read = Read(Line(number or 0, 0, data[:4096]), stripped, None)
        for note in notes(read, self._file, inside=True):
            if (
                note.kind in ("exit", "killed")
                or (note.kind == "cascade" and note.value in _DEADLY)
                or (note.kind == "signal" and note.value in _SIGNALS)
            ):
                text = stripped.body.strip()[:300]
                self.pending = Pending(Found("fatal", text, line=number, rank=rank), number, now)
                return
        if m := ALONE.match(stripped.body):
            text = f"{m['type']}: {m['message']}"[:300]
            if not m["type"].endswith(("Warning", "Exit")):
                self.pending = Pending(Found("traceback", text, line=number, rank=rank), number, now)


_EXCEPTION = re.compile(r"^(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)(?:: (?P<message>.*)|:?$)")


def xid_text(xid: Xid, body: str) -> str:
    """A line about an Xid, with what the catalogue says of its code."""
    line = body.strip()[:200]
    return f"Xid {xid.code} ({xid.known['name']}; {xid.known['action']}): {line}" if xid.known else line
