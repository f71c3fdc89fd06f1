"""What a conversation is opened with, and who opens it: the command line, on behalf of the screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .talk import Conversation


@dataclass(frozen=True, slots=True)
class Wanted:
    """A run or a session to talk about, in the words of the command line. Nothing named: no run at all.

    Attributes:
        resume: go on with the newest session, of the paths where some are named.
        report: a report in a file, whose run is then looked at.
    """

    paths: tuple[str, ...] = ()
    good: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    session: str = ""
    resume: bool = False
    report: str = ""


class House(Protocol):
    """Opens conversations with the options of the command line. Its methods read files: not for a UI thread."""

    def open(self, wanted: Wanted) -> Conversation:
        """A conversation.

        Raises:
            DoctorError: there is no such run or session, or nothing in it can be read.
        """
        ...

    def name_model(self, talk: Conversation, name: str) -> None:
        """Let another model plan; an empty name: none, and nothing is sent.

        Raises:
            DoctorError: it cannot be asked.
        """
        ...

    def models(self) -> list[str]:
        """Names of the profiles that the user's file has."""
        ...
