"""The line above the prompt: what is under way, how far, for how long, how to stop it; how much more is below."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from ..text import said

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from .checks import Checks

_BLOCKS = 12
_GB = 1 << 30


class Activity(Static):
    """Drawn four times a second while an answer is under way; gone where there is nothing to tell."""

    DEFAULT_CSS = """
    Activity { height: 1; padding: 0 1; color: $text-muted; display: none; text-wrap: nowrap; text-overflow: ellipsis; }
    Activity.-busy, Activity.-more { display: block; }
    """

    def __init__(self) -> None:
        super().__init__("", id="activity")
        self._what = self._more = ""
        self._since = 0.0
        self._talk: Conversation | None = None
        self._checks: Callable[[], Checks | None] = lambda: None

    def on_mount(self) -> None:
        self._clock = self.set_interval(0.25, self._renew, pause=True)  # idle, nothing is drawn and nothing wakes up

    def begin(self, what: str, talk: Conversation | None, checks: Callable[[], Checks | None]) -> None:
        """Something starts: a diagnosis, the opening of a run."""
        self._what, self._talk, self._checks, self._since = what, talk, checks, time.monotonic()
        self.add_class("-busy")
        self._clock.resume()
        self._renew()

    def more(self, lines: int, key: str) -> None:
        """So many lines of the conversation are below what is seen; the key that leads there, if there is one."""
        told = f"{lines} more line{'s' * (lines != 1)} below{f' ({key})' * bool(key)}" if lines else ""
        if told == self._more:
            return
        self._more = told
        self.set_class(bool(lines), "-more")
        self._renew()

    def turn(self, what: str) -> None:
        """It goes on with something else."""
        self._what = what
        self._renew()

    def end(self) -> None:
        """It is over."""
        self.remove_class("-busy")
        self._clock.pause()
        self._talk = None
        self._renew()

    def _renew(self) -> None:
        if not self.has_class("-busy"):
            self.update(said(self._more))
            return
        told = [
            self._passed() or self._at_work() or self._what or "getting ready",
            f"{time.monotonic() - self._since:.0f} s",
            "esc stops",
            self._more,
        ]
        self.update(Content("  ").join(said(t) for t in told if t))

    def _passed(self) -> str:
        """How far a long pass over files is, as a bar and in numbers."""
        progress = self._talk.workspace.progress if self._talk else None
        if progress is None or not progress.what or progress.total < 50e6:
            return ""
        share = min(progress.done / progress.total, 1.0)
        full = round(share * _BLOCKS)
        amount = f"{progress.done / _GB:.2f} of {progress.total / _GB:.2f} GiB"
        return f"{progress.what} [{'#' * full}{'.' * (_BLOCKS - full)}] {amount}"

    def _at_work(self) -> str:
        checks = self._checks()
        if checks is None or self._what or not checks.made:
            return ""
        running = checks.running()
        done = len(checks.made) - len(running)
        told = f"{done} check{'s' * (done != 1)} done"
        if not running:
            return f"{told}, weighing what they found"
        oldest = min(running, key=lambda m: m.began)
        more = f" and {len(running) - 1} more" if len(running) > 1 else ""
        return f"{told}, running {oldest.call.tool.replace('_', '-')}{more}"
