"""What was diagnosed before: sessions of the state folder, and reports that failed jobs left in folders.

Everything here is read with the least that is needed to list it. What is of another version, damaged, or written by
somebody else is listed as such; opening it tells the rest.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ..core.errors import ParseError
from ..core.report import SCHEMA
from ..reading.run.files import open_regular
from ..session.store import DATABASE, ROOTS, STDIN, usable_state

# ----------
# Sessions by the steps that are kept of them, read from the database without its library, which is slow to load.
#
# Nothing of this is needed to go on with a session; it tells what was asked and what it was left at.


_BLOB = 32 << 20  # bytes of a step that are unpacked to find its question
_LATEST = (
    "SELECT thread_id, MAX(checkpoint_id) FROM checkpoints WHERE checkpoint_ns = '' GROUP BY thread_id "
    "ORDER BY thread_id DESC LIMIT 300"
)
_INTERRUPTS = "SELECT thread_id, checkpoint_id, value FROM writes WHERE channel = '__interrupt__' LIMIT 1000"
_STEP = (
    "SELECT checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' AND checkpoint_id = ? "
    "AND length(checkpoint) <= ?"
)


@dataclass(frozen=True, slots=True)
class Begun:
    """A session that has steps: its last step's time and question, and the calls that wait for a yes."""

    session: str
    time: float
    question: str = ""
    waiting: str = ""


def begun(state: Path) -> list[Begun]:
    """All sessions with steps in the database; none where there is no database or it cannot be used."""
    path = state / DATABASE
    if not path.is_file():
        return []
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=1.0)) as base:
            latest = [(str(t), str(c)) for t, c in base.execute(_LATEST)]
            asked = {(str(t), str(c)): v for t, c, v in base.execute(_INTERRUPTS)}
            return [_one(base, state, t, c, asked.get((t, c))) for t, c in latest]
    except sqlite3.Error:
        return []


def _one(base: sqlite3.Connection, state: Path, session: str, step: str, interrupt: bytes | None) -> Begun:
    waiting = _calls(_unpacked(interrupt)) if interrupt else ""
    if (state / "reports" / f"{session}.json").exists():  # its report tells the rest
        return Begun(session, 0.0, waiting=waiting)
    row = base.execute(_STEP, (session, step, _BLOB)).fetchone()
    held = _unpacked(row[0]) if row else None
    held = held if isinstance(held, dict) else {}
    values = held.get("channel_values")
    values = values if isinstance(values, dict) else {}
    start = values.get("__start__")
    asked = values.get("question") or (start.get("question") if isinstance(start, dict) else "")
    return Begun(session, _time(held.get("ts"), session), asked if isinstance(asked, str) else "", waiting)


def _unpacked(data: Any) -> Any:
    """A packed value with its extensions as plain lists; None where it is none, or of another form."""
    import ormsgpack

    options = ormsgpack.OPT_NON_STR_KEYS

    def hook(_code: int, inner: bytes) -> Any:
        return ormsgpack.unpackb(inner, ext_hook=hook, option=options)

    try:
        return ormsgpack.unpackb(data, ext_hook=hook, option=options)
    except (ValueError, TypeError, RecursionError):
        return None


def _calls(held: Any) -> str:
    """Calls that wait, in words: `py_spy pid=123`."""
    try:
        calls = held[0][2]["value"]["calls"]
        said = [" ".join([str(c["tool"]), *(f"{k}={v}" for k, v in (c.get("args") or {}).items())]) for c in calls[:4]]
    except (TypeError, KeyError, IndexError, AttributeError):
        return "a question"
    return ", ".join(said)[:400]


def _time(stamp: Any, session: str) -> float:
    """When the step was made; else the time that the id names."""
    try:
        return datetime.fromisoformat(stamp).timestamp()
    except (ValueError, TypeError):
        pass
    try:
        return datetime.strptime(session[:15] + "+0000", "%Y%m%d-%H%M%S%z").timestamp()
    except ValueError:
        return 0.0


# ----------

LISTED = 500  # sessions, the newest; older ones are counted
_BYTES = 64 << 20  # of a report that is read
_TEXT = 2_000  # characters of a question
OTHER, DAMAGED, UNFINISHED = "of another version", "damaged", "unfinished"


@dataclass(frozen=True, slots=True)
class Recent:
    """An earlier diagnosis.

    Attributes:
        session: its id; of a report in a folder the session that made it, which may be of another machine.
        file: the doctor-report.json, where it is one of a folder and not of the state folder.
        status: as in the report; else `unfinished`, `damaged`, `of another version`.
        roots: of the runs it is about, healthy ones left out; none where they are not known.
        questions: how many were asked in it.
        there: whether its run is still there; None: not looked for, or its file system does not answer.
        waiting: what it was left at: `py_spy pid=123`.
        foreign: the report lies in a folder, and whoever may write there may have made it.
    """

    session: str
    time: float
    status: str
    question: str = ""
    cause: str = ""
    title: str = ""
    roots: tuple[str, ...] = ()
    questions: int = 1
    there: bool | None = None
    waiting: str = ""
    file: Path | None = None

    @property
    def foreign(self) -> bool:
        return self.file is not None

    @property
    def key(self) -> str:
        """What tells it from all others, for as long as the program runs."""
        return f"file:{self.file}" if self.file else f"session:{self.session}"

    @property
    def opens(self) -> bool:
        """Whether there is a report that can be shown, or work that can be gone on with."""
        return self.status not in (OTHER, DAMAGED)

    @property
    def goes_on(self) -> bool:
        """Whether it takes further questions on the same evidence: its steps and its run are there."""
        return self.opens and not self.foreign and self.there is not False


@dataclass(slots=True)
class Presence:
    """Whether folders are still there, asked of each once, by a thread that may hang: a dead server answers never."""

    seconds: float = 0.4
    known: dict[str, bool | None] = field(default_factory=dict)
    silent: int = 0

    def of(self, entry: Recent) -> Recent:
        """The entry with what is known of its run."""
        if not entry.roots:
            return entry
        found = [self._one(root) for root in entry.roots]
        there = False if False in found else None if None in found else True
        return replace(entry, there=there)

    def _one(self, root: str) -> bool | None:
        if root == STDIN:
            return False
        if root not in self.known:
            self.known[root] = self._asked(root) if self.silent < 3 else None
        return self.known[root]

    def _asked(self, root: str) -> bool | None:
        answered = within(self.seconds, lambda: _is_there(root))
        if answered is None:
            self.silent += 1
        return answered


def within(seconds: float, ask: Callable[[], Any]) -> Any:
    """What a question of the file system answers, or None: it does not answer in time, or fails."""
    import threading

    answers: list[Any] = []

    def work() -> None:
        try:
            answers.append(ask())
        except (OSError, ValueError, RuntimeError):
            return

    thread = threading.Thread(target=work, daemon=True, name="look")  # never waited for at the end
    thread.start()
    thread.join(seconds)
    return answers[0] if answers else None


def _is_there(root: str) -> bool:
    try:
        Path(root).stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    return True


def sessions(state: Path) -> Iterator[Recent]:
    """Sessions of the state folder, newest first, at most `LISTED`: finished ones, and those that were begun."""
    steps = begun(state)
    paths = _by_time(state / "reports")
    kept = {path.stem for path, _ in paths}
    waiting = [replace(_unfinished(b), **_kept(state, b.session)) for b in steps if b.session not in kept]
    left = {b.session: b.waiting for b in steps}
    waiting.sort(key=lambda r: -r.time)
    for count, (path, changed) in enumerate(paths):
        if count >= LISTED:
            break
        while waiting and waiting[0].time >= changed:
            yield waiting.pop(0)
        entry = read_report(path, changed)
        # By its file's name: that is what opens it.
        yield replace(entry, session=path.stem, file=None, waiting=left.get(path.stem, ""), **_kept(state, path.stem))
    yield from waiting


def usual_state() -> Path:
    """The state folder where none is named."""
    return usable_state()[0]


def how_many(state: Path) -> int:
    """Reports in the state folder, listed or not."""
    return len(_by_time(state / "reports"))


def _by_time(folder: Path) -> list[tuple[Path, float]]:
    import os

    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    try:
                        found.append((Path(entry.path), entry.stat().st_mtime))
                    except OSError:
                        continue
    except OSError:
        return []
    return sorted(found, key=lambda f: (-f[1], f[0].name))


def _unfinished(b: Begun) -> Recent:
    return Recent(b.session, b.time, UNFINISHED, b.question[:_TEXT], waiting=b.waiting)


def _kept(state: Path, session: str) -> dict[str, Any]:
    """What the state folder knows of a session beside its report: absolute roots, the number of questions."""
    known: dict[str, Any] = {}
    folder = state / "reports" / session
    try:
        known["questions"] = max(1, sum(1 for _ in folder.glob("[0-9]*.json")))
        rows = json.loads((folder / ROOTS).read_text(encoding="utf-8"))
        known["roots"] = tuple(str(row[0]) for row in rows if not row[1])
    except (OSError, ValueError, TypeError, IndexError):  # of an earlier version
        pass
    return known


def read_report(path: Path, changed: float, own: bool = True) -> Recent:
    """A report's entry in the list, whatever the file holds.

    Args:
        changed: when it was written.
        own: of the state folder; a report of another folder is told with its file.
    """
    file = None if own else path
    try:
        with open_regular(path) as stream:
            data = stream.read(_BYTES + 1) or b""
        if len(data) > _BYTES:
            return Recent(path.stem, changed, DAMAGED, file=file)
        held = json.loads(data)
    except (ParseError, OSError, ValueError, RecursionError):
        return Recent(path.stem, changed, DAMAGED, file=file)
    try:
        return _entry(held, path, changed, file)
    except (KeyError, TypeError, AttributeError, ValueError):
        return Recent(path.stem, changed, OTHER, file=file)


def _entry(held: Any, path: Path, changed: float, file: Path | None) -> Recent:
    """The fields that the list needs.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: they are not there.
    """
    if held["schema"] != SCHEMA:
        raise ValueError(held["schema"])
    root = held["root_cause"]
    runs = [r for r in held.get("runs", []) if not r.get("good")]
    return Recent(
        session=str(held.get("session") or path.stem)[:80],
        time=changed,
        status=str(held["status"])[:40],
        question=str(held.get("question") or "")[:_TEXT],
        cause=str(root.get("id") or "")[:200],
        title=str(root.get("title") or "")[:_TEXT],
        roots=tuple(str(r["root"]) for r in runs[:20]),
        file=file,
    )


def ago(then: float, now: float | None = None) -> str:
    """An age in a few words: `3 h ago`; a date from two months on, or where a clock runs ahead."""
    seconds = (time.time() if now is None else now) - then
    if -60 < seconds < 60:
        return "now"
    for size, word, most in ((60, "min", 60), (3600, "h", 48), (86400, "d", 60)):
        if 0 < seconds < size * most:
            return f"{int(seconds // size)} {word} ago"
    try:
        return time.strftime("%Y-%m-%d", time.localtime(then))
    except (OverflowError, OSError, ValueError):
        return "?"
