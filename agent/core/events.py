"""What a diagnosis tells while it runs. One stream; terminal, chat, triage and evaluation all read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .types import Call, Evidence, Hypothesis, ToolResult

if TYPE_CHECKING:
    from .report import Report


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
    """One line about how the diagnosis goes on, for the progress display; `of_call`: about a call that begins next."""

    text: str
    of_call: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of what the model writes, as it comes."""

    text: str


@dataclass(frozen=True, slots=True)
class Ranked:
    """How the hypotheses stand before the next step, the leading first, with the evidence that they cite.

    Told where `diagnose(..., watched=True)` asks for it.
    """

    hypotheses: tuple[Hypothesis, ...]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Spent:
    """What the model has cost for this question so far; `seconds` are those waited for it."""

    calls: int
    tokens_in: int
    tokens_out: int
    seconds: float
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class ReportReady:
    """The end of the stream."""

    report: Report


Event = SessionStarted | CallStarted | ToolFinished | ApprovalNeeded | Note | Token | Ranked | Spent | ReportReady
