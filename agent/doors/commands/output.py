"""Where an answer goes: standard output in the form the user chose, and files of the run where asked."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import typer

from ...core.errors import UsageError
from ...safety.fences import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from ...core.events import Event
    from ...core.report import Report
    from ...core.types import Call
    from ...reading.run.workspace import Workspace


# ----------
# Standard output as every command uses it. A reader that leaves early (`| head`) is no error.


def print_line(text: str) -> None:
    """One text and a newline on standard output, as it is."""
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        nobody_listens()
        raise typer.Exit(0) from None


def print_bytes(data: bytes) -> None:
    """Bytes on standard output as they are, whatever encoding the terminal has."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        nobody_listens()
        raise typer.Exit(0) from None


def print_json(data: Any) -> None:
    """Plain data as JSON on standard output."""
    import json

    print_line(json.dumps(data, indent=2, ensure_ascii=False, default=str))


def nobody_listens() -> None:
    """Let what is still to be written go nowhere, also what Python flushes when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ----------

STDOUT = "-"


class Form(Enum):
    """How an answer is printed."""

    RICH = auto()
    PLAIN = auto()
    JSON = auto()
    MARKDOWN = auto()


def form(*, json: bool = False, markdown: bool = False, plain: bool = False) -> Form:
    """The one form that the flags name.

    Raises:
        UsageError: they name several.
    """
    named = [f for f, wanted in ((Form.JSON, json), (Form.MARKDOWN, markdown), (Form.PLAIN, plain)) if wanted]
    if len(named) > 1:
        raise UsageError("--json, --markdown and --plain exclude each other", "choose one")
    return named[0] if named else Form.RICH


def show(report: Report, form: Form) -> None:
    """Print a report on standard output."""
    if form is Form.JSON:
        print_line(report.to_json())
    elif form is Form.MARKDOWN:
        from ...chat.chat_export import exported

        print_line(exported([report], ".md").decode().rstrip("\n"))
    elif form is Form.PLAIN:
        from ...telling.render import as_plain

        print_line(as_plain(report))
    else:
        from ...telling.render import as_page

        print_line(as_page(report))


def check_page(named: str | None, form: Form) -> None:
    """Look before a diagnosis whether its page can be put where it is wanted.

    Raises:
        UsageError: the folder is missing, something that is no page of doctor's stands there, or standard output is
            wanted for two things.
    """
    if named is None:
        return
    if named == STDOUT:
        if form is not Form.RICH:
            raise UsageError("--html - and another form both want standard output", "name a file for the page")
        return
    path = Path(named).expanduser()
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {one_line(str(path.parent))}", "make it first, or name another file")
    if os.path.lexists(path) and not _is_page(path):
        raise UsageError(
            f"{one_line(str(path))} is there and is no page of doctor's", "name another file: it is not overwritten"
        )


def _is_page(path: Path) -> bool:
    from ...core.errors import ParseError
    from ...reading.run.files import open_regular
    from ...reading.run.roles import PAGE

    try:
        with open_regular(path) as stream:
            return stream.read(len(PAGE)) == PAGE
    except (ParseError, OSError):
        return False


def show_page(report: Report, workspace: Workspace | None, named: str, quiet: bool = False) -> None:
    """Write a report as a page, whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    from ...telling.page.page_document import as_html

    data = as_html(report, workspace).encode()
    if named == STDOUT:
        print_bytes(data)
        return
    check_page(named, Form.RICH)  # again: a diagnosis takes a while
    path = Path(named).expanduser()
    try:
        _replace(path, data, 0o666)
    except OSError as e:
        raise UsageError(f"cannot write {one_line(str(path))}: {e.strerror}", "name another file") from None
    if not quiet:
        sys.stderr.write(f"wrote {one_line(str(path))}\n")


def _replace(path: Path, data: bytes, mode: int) -> None:
    """Put a file in place in one step; `mode` is what the user's mask is taken from."""
    beside = path.with_name(f".{path.name[:80]}.{token_hex(6)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write(report: Report, roots: list[str], quiet: bool, workspace: Workspace | None = None) -> None:
    """Put `doctor-report.json`, `.md` and `.html` beside the run, each whole or not at all."""
    from ...telling.page.page_document import as_html
    from ...telling.render import as_markdown

    root = Path(roots[0]).expanduser()
    folder = root if root.is_dir() else root.parent
    forms: dict[str, Callable[[], str]] = {
        ".json": report.to_json,
        ".md": lambda: as_markdown(report),
        ".html": lambda: as_html(report, workspace),
    }
    for suffix, text in forms.items():
        path = folder / f"doctor-report{suffix}"
        try:
            _replace(path, f"{text().rstrip()}\n".encode("utf-8", "replace"), 0o600)
        except OSError as e:
            sys.stderr.write(f"doctor: cannot write {one_line(str(path))}: {e.strerror}\n")
            continue
        if not quiet:
            sys.stderr.write(f"wrote {one_line(str(path))}\n")


# ----------
# What a diagnosis tells while it runs, on standard error: a moving line on a terminal, plain lines elsewhere.

PATIENCE = 1.0  # seconds before anything moves on the screen
THOUGHT = 4000  # characters of a line that a model writes


def follow(events: Iterable[Event], quiet: bool = False) -> Report:
    """Consume the events of a diagnosis and give its report.

    Raises:
        RuntimeError: the stream ended without one (a bug of ours).
    """
    from ...core.events import CallStarted, Note, ReportReady, Token, ToolFinished

    display = _Display(quiet)
    try:
        for event in events:
            match event:
                case CallStarted(call):
                    display.begin(call.tool)
                case ToolFinished(call, _, _):
                    display.end(call.tool)
                case Note(text):
                    display.say(text)
                case Token(text):
                    display.think(text)
                case ReportReady(report):
                    return report
                case _:
                    pass
    finally:
        display.close()
    raise RuntimeError("the diagnosis ended without a report")


def may_ask(quiet: bool) -> bool:
    """Whether there is somebody at a terminal who can be asked."""
    return not quiet and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def approve(calls: tuple[Call, ...], workspace: Workspace | None = None) -> list[str]:
    """Ask at the terminal about each call above the allowed risk; the default is no.

    Args:
        workspace: of the run; with it the commands are shown that a call would run.

    Returns:
        the identities of the calls that may be made.
    """
    pass

    allowed = []
    for number, call in enumerate(calls, 1):
        count = f" ({number} of {len(calls)})" if len(calls) > 1 else ""
        for line in _ahead(call, workspace):
            sys.stderr.write(f"{one_line(line)}\n")
        if agreed(f"May doctor run {one_line(call.identity)}?{count}"):
            allowed.append(call.identity)
    return allowed


def _ahead(call: Call, workspace: Workspace | None) -> Iterator[str]:
    """What can be said about a call before it is made, in lines."""
    import shlex

    from ...chat.consent import MEANS
    from ...tools.rehearsal import rehearse
    from ...tools.tool import all_tools

    if tool := all_tools().get(call.tool):
        yield f"{call.tool}: {tool.title}"
        yield f"  risk: {tool.risk}: {MEANS[tool.risk]}"
    yield f"  why: {call.why or 'the planner gave no reason'}"
    if workspace is None:
        return
    ahead = rehearse(call, workspace)
    yield from (f"  touches: {touched}" for touched in ahead.touches)
    for line in ahead.lines:
        set_beside = " ".join(f"{k}={shlex.quote(v)}" for k, v in line.env)
        where = f"  (in {line.cwd})" if line.cwd else ""
        yield f"  would run: {set_beside + ' ' if set_beside else ''}{shlex.join(line.argv)}{where}"
    if ahead.note:
        yield f"  note: {ahead.note}"


class _Display:
    """A spinner with what is done and what is running; it appears only when a diagnosis takes over a second."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._done = 0
        self._running: list[str] = []
        self._thought = ""  # of a model, up to where its line ends
        self._status: Status | None = None
        self._console: Console | None = None
        self._patience: threading.Timer | None = None
        if not quiet and sys.stderr.isatty():
            from rich.console import Console

            self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._patience = threading.Timer(PATIENCE, self._appear)
            self._patience.daemon = True
            self._patience.start()

    def begin(self, name: str) -> None:
        """A check starts."""
        self._end_thought()
        self._running.append(name)
        self._update()

    def end(self, name: str) -> None:
        """A check is done."""
        if name in self._running:
            self._running.remove(name)
        self._done += 1
        self._update()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._end_thought()
        self._print(text)

    def _print(self, text: str) -> None:
        if self._quiet:
            return
        if self._console:
            self._console.print(one_line(text), style="dim")
        else:
            sys.stderr.write(f"{one_line(text)}\n")

    def think(self, piece: str) -> None:
        """A piece of what a model writes; shown by whole lines, as it is not to be trusted with the cursor."""
        self._thought += piece
        *lines, self._thought = self._thought[-THOUGHT:].split("\n")
        for line in filter(str.strip, lines):
            self._print(f"  {line}")

    def _end_thought(self) -> None:
        if self._thought.strip():
            thought, self._thought = self._thought, ""
            self._print(f"  {thought}")

    def close(self) -> None:
        """Leave nothing moving on the screen."""
        self._end_thought()
        if self._patience:
            self._patience.cancel()
            self._patience.join()
        if self._status:
            self._status.stop()

    def _appear(self) -> None:
        if self._console:
            self._status = self._console.status(self._text())
            self._status.start()

    def _update(self) -> None:
        if self._status:
            self._status.update(self._text())

    def _text(self) -> str:
        return f"{self._done} checks done; {', '.join(self._running[:3]) or 'weighing the evidence'}"


# ----------
# A question at the terminal before a file of the user's is changed. The answer is no unless someone says yes.


def can_ask() -> bool:
    """Whether somebody is at a terminal."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def agreed(question: str) -> bool:
    """Ask; what was typed before the question was shown does not count."""
    return answer(f"{question} [y/N] ").lower() in ("y", "yes")


def answer(prompt: str) -> str:
    """What somebody types on one line; empty at the end of input."""
    import termios

    sys.stdout.flush()
    sys.stderr.write(prompt)
    sys.stderr.flush()
    try:
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    except (termios.error, OSError, ValueError):  # no terminal after all
        return ""
    return sys.stdin.readline().strip()
