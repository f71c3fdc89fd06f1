"""What an answer says, taken from its thread a little at a time: however much it says, keys are never kept waiting."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ...agent.core.events import CallStarted, Note, ReportReady, SessionStarted, Spent, Token, ToolFinished
from .asking import Happened

if TYPE_CHECKING:
    from textual.timer import Timer

    from .joined import JoinedScreen

EVERY, FOR = 0.03, 0.012  # seconds between two looks, and of one look at most
RESTS, RESTS_MOST = 3, 2.0  # times as long as drawing takes, and seconds at most; a slow screen falls behind
FLOOD = 400  # events that wait, from which on only what counts is shown
BEHIND = 8  # messages that the conversation may have before it is given more to show


class Hearing:
    """Brings the events of the answer that is under way to the parts of the screen."""

    def __init__(self, screen: JoinedScreen) -> None:
        self._screen = screen
        self._timer: Timer | None = None
        self._rests = 0.0  # until when nothing more is taken
        self._unread = 0  # lines that came in a flood

    def begin(self) -> None:
        """The screen is there."""
        self._timer = self._screen.set_interval(EVERY, self._look, pause=True)

    def resume(self) -> None:
        """An answer begins."""
        if self._timer:
            self._timer.resume()

    def pause(self) -> None:
        """It is over."""
        if self._timer:
            self._timer.pause()

    def _look(self) -> None:
        """Take what was said since, for a moment, then rest for longer than drawing it takes."""
        screen, began = self._screen, time.monotonic()
        if began < self._rests or screen.asking.silent:
            return
        self._rests = began + RESTS_MOST
        screen.call_after_refresh(self._drawn, began)
        for said in screen.asking.heard(
            lambda: time.monotonic() < began + FOR and screen.transcript.message_queue_size < BEHIND
        ):
            if isinstance(said, Happened):
                self._happened(said)
            else:
                screen.ended(said)

    def _drawn(self, began: float) -> None:
        now = time.monotonic()
        self._rests = now + min(RESTS * (now - began), RESTS_MOST)

    def _happened(self, message: Happened) -> None:
        """One event; those of an answer that was stopped or left come late and are dropped."""
        screen, event = self._screen, message.event
        if screen.asking.now is not message.asked or screen.asking.stop_now.is_set():
            return
        checks, flood = screen.transcript.checks, screen.asking.backlog > FLOOD
        if self._unread and not flood:
            screen.transcript.tell(f"{self._unread:,} lines came faster than they can be read, and are not shown")
            self._unread = 0
        match event:
            case CallStarted(call) if checks:
                checks.begin(call, folded=flood)
            case ToolFinished(call, result, seconds) if checks:
                checks.finish(call, result, seconds)
            case Note(text) | Token(text) if flood:
                self._unread += text.count("\n") + 1
            case Note(text, of_call) if not of_call:  # a call has its card
                screen.transcript.tell(text)
            case Token(text):
                screen.transcript.write(text)
            case Spent():
                screen.status.spend(event)
            case SessionStarted():
                screen.status.renew()
            case ReportReady(report):
                screen.answered(report)
            case _:
                pass
        screen.side.see(event)
