"""Approvals: the thread of a diagnosis waits while somebody at the screen says what may run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from ...agent.chat.consent import Asked, Consent
    from .joined import JoinedScreen


@dataclass
class ToApprove(Message):
    """Calls wait for a yes; with none of them: what they would run is being found out."""

    asked: list[Asked]


class Approving:
    """The decisions of the conversation that is open, and the dialogs in which they are made."""

    def __init__(self, screen: JoinedScreen) -> None:
        self._screen = screen
        self._consent: Consent | None = None

    def begin(self) -> None:
        """Another conversation: nothing is decided."""
        self.withdraw()
        self._consent = None

    def asked(self, stop: threading.Event) -> Callable[..., object]:
        """The function that the diagnosis asks; it waits on the diagnosis' own thread."""
        from ...agent.chat.consent import Consent

        talk = self._screen.talk
        if self._consent is None:
            self._consent = Consent(self._put, stop, talk.workspace if talk else None, lambda: self._put([]))
        if talk is not None:
            self._consent.workspace = talk.workspace
        return self._consent.until(stop)

    def _put(self, asked: list[Asked]) -> None:
        self._screen.post_message(ToApprove(asked))

    def show(self, asked: list[Asked]) -> None:
        """Ask about each call in turn."""
        from ..dialogs.approval import ask_one_by_one

        consent = self._consent
        if consent is None or self._screen.asking.stop_now.is_set():
            return
        if not asked:
            self._screen.activity.turn("finding out what it would run")
        elif consent.waiting == asked:  # else the answer that asked was stopped meanwhile
            self._screen.activity.turn("waiting for your answer")
            ask_one_by_one(self._screen.app, asked, self._answered)

    def withdraw(self) -> None:
        """The answer was stopped: nobody needs to say anything."""
        if self._consent is not None:
            from ..dialogs.approval import withdraw

            withdraw(self._screen.app)

    def described(self) -> list[str]:
        """What was decided, in lines."""
        return self._consent.describe() if self._consent else []

    def _answered(self, decisions: dict) -> None:
        self._screen.activity.turn("")
        if self._consent is not None:
            self._consent.answer(decisions)
