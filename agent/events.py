"""What a diagnosis tells while it runs. One stream; terminal, chat, triage and evaluation all read it."""

from __future__ import annotations

from dataclasses import dataclass

from .report import Report
from .types import Call, ToolResult


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """The session exists and can be resumed by this id."""

    session: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A tool begins."""

    call: Call


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool answered, with the seconds it took."""

    call: Call
    result: ToolResult
    seconds: float


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """Calls above the allowed risk wait for a yes; nothing runs until the session is resumed with one."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """One line about how the diagnosis goes on, for the progress display."""

    text: str


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of what the model writes, as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class ReportReady:
    """The end of the stream."""

    report: Report


Event = SessionStarted | CallStarted | ToolFinished | ApprovalNeeded | Note | Token | ReportReady
