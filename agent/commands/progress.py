"""What a diagnosis tells while it runs, on standard error: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ..sanitize import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from ..events import Event
    from ..report import Report
    from ..types import Call
    from ..workspace import Workspace

PATIENCE = 1.0  # seconds before anything moves on the screen
THOUGHT = 4000  # characters of a line that a model writes


def follow(events: Iterable[Event], quiet: bool = False) -> Report:
    """Consume the events of a diagnosis and give its report.

    Raises:
        RuntimeError: the stream ended without one (a bug of ours).
    """
    from ..events import CallStarted, Note, ReportReady, Token, ToolFinished

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
    from .consent import agreed

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

    from ..conversation.consent import MEANS
    from ..rehearsal import rehearse
    from ..tool import all_tools

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
