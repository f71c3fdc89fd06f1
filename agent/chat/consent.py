"""What may run in a conversation beyond what is allowed: asked about, and remembered as long as it lasts.

The diagnosis waits on its own thread in `Consent.approve` until `answer` is called or it is stopped. Stopped, it
answers nothing: the session stays at the question on disk, and is asked again where it is gone on with.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from ..core.errors import Stopped
from ..core.types import Call, Risk
from ..safety.fences import one_line
from ..tools.rehearsal import Rehearsed, rehearse
from ..tools.tool import all_tools

if TYPE_CHECKING:
    from ..reading.run.workspace import Workspace

_LEFT = ("stopped", "nothing was answered: go on with the session to be asked again")
LOOK = 0.05  # seconds between two looks whether the question was stopped
MEANS = {
    Risk.READ: "reads files and asks this machine; changes nothing",
    Risk.PROBE: "attaches to a live process to read it, and may pause it for a moment",
    Risk.COSTLY: "puts load on this machine, or runs code of yours",
    Risk.WRITE: "changes files",
}


class Decision(StrEnum):
    """What somebody says to one call."""

    NO = "no"
    ONCE = "once"
    SESSION = "session"
    NEVER = "never"

    @property
    def allows(self) -> bool:
        """Whether the call may be made."""
        return self in (Decision.ONCE, Decision.SESSION)


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that waits for a yes, with all that can be said about it before.

    Attributes:
        scope: what "for this session" would cover: the check by its name, or this very call, where its arguments say
            what is run.
        rehearsed: what would run.
    """

    call: Call
    title: str
    risk: Risk
    scope: str
    rehearsed: Rehearsed

    @property
    def means(self) -> str:
        """What its risk means, in words."""
        return MEANS[self.risk]

    @property
    def whole(self) -> bool:
        """Whether a lasting answer covers every call of the check."""
        return self.scope == self.call.tool


@dataclass(eq=False)
class _Question:
    """Calls that were put before somebody, and what was said to them."""

    asked: list[Asked]
    said: dict[str, Decision] | None = None


class Consent:
    """The decisions of one conversation, and the question that waits. Every method may be called from any thread.

    Args:
        show: puts the calls before somebody; it must return at once, and `answer` is called later.
        stop: ends the wait.
        workspace: of the run, for what the calls would run; without one that is not told.
        looks: told before it is found out what they would run: that may take seconds.
    """

    def __init__(
        self,
        show: Callable[[list[Asked]], None],
        stop: threading.Event,
        workspace: Workspace | None = None,
        looks: Callable[[], None] = lambda: None,
    ) -> None:
        self.workspace = workspace
        self._show, self._looks = show, looks
        self._stop = stop
        self._said: dict[str, Decision] = {}
        self._question: _Question | None = None
        self._changed = threading.Condition()

    def until(self, stop: threading.Event) -> Callable[[tuple[Call, ...]], bool | list[str]]:
        """`approve` for the next question, which ends with another event."""

        def approve(calls: tuple[Call, ...]) -> bool | list[str]:
            return self.approve(calls, stop)

        return approve

    def approve(self, calls: tuple[Call, ...], stop: threading.Event | None = None) -> bool | list[str]:
        """The identities of the calls that may be made; blocks while somebody is asked.

        Raises:
            Stopped: the question was stopped before it was answered. Nothing is decided then.
        """
        stop = stop or self._stop
        decided, undecided = self.ask(calls)
        if undecided:
            self._looks()
            asked = [self._asked(c, stop) for c in undecided]
            decided |= self._answered(asked, stop)
        return [identity for identity, decision in decided.items() if decision.allows]

    def ask(self, calls: Sequence[Call]) -> tuple[dict[str, Decision], list[Call]]:
        """What was decided before, by identity, and the calls that are to be asked about."""
        with self._changed:
            known = {c.identity: self._said.get(scope_of(c)) for c in calls}
        lasting = {i: d for i, d in known.items() if d is Decision.SESSION or d is Decision.NEVER}
        undecided = {c.identity: c for c in calls if c.identity not in lasting}  # the same call twice is one question
        return lasting, list(undecided.values())

    def answer(self, decisions: Mapping[str, Decision]) -> None:
        """Release the question that waits. Calls that are not named are refused.

        Where none waits, or all that is named belongs to a question that was stopped, nothing is done.
        """
        with self._changed:
            question = self._question
            if question is None or (decisions and not {a.call.identity for a in question.asked} & decisions.keys()):
                return
            self._question = None
            question.said = {a.call.identity: decisions.get(a.call.identity, Decision.NO) for a in question.asked}
            self._said |= {a.scope: question.said[a.call.identity] for a in question.asked}
            self._changed.notify_all()

    @property
    def waiting(self) -> list[Asked]:
        """The calls that wait for an answer now."""
        with self._changed:
            return list(self._question.asked) if self._question else []

    def describe(self) -> list[str]:
        """What was decided last about each check, in lines."""
        words = {
            Decision.NO: "refused when it was asked for last; it is asked about again",
            Decision.ONCE: "allowed once; it is asked about again",
            Decision.SESSION: "allowed until this chat is closed",
            Decision.NEVER: "refused until this chat is closed",
        }
        with self._changed:
            return [f"{one_line(scope)}: {words[d]}" for scope, d in sorted(self._said.items())]

    def forget(self) -> None:
        """Everything is asked about again."""
        with self._changed:
            self._said.clear()

    def _asked(self, call: Call, stop: threading.Event) -> Asked:
        tool = all_tools().get(call.tool)
        ahead = Rehearsed(note="What it would run cannot be told here.")
        if self.workspace is not None:
            ahead = rehearse(call, self.workspace, stopped=stop.is_set)
        title, risk = (tool.title, tool.risk) if tool else (call.tool, Risk.COSTLY)
        return Asked(call, title, risk, scope_of(call), ahead)

    def _answered(self, asked: list[Asked], stop: threading.Event) -> dict[str, Decision]:
        question = _Question(asked)
        with self._changed:
            if stop.is_set():
                raise Stopped(*_LEFT)
            self._question = question
        self._show(asked)
        with self._changed:
            while not stop.is_set():
                if question.said is not None:
                    return question.said
                self._changed.wait(LOOK)
            if self._question is question:
                self._question = None
        raise Stopped(*_LEFT)


def scope_of(call: Call) -> str:
    """What a lasting answer covers: a check by its name; one that cannot run without an argument only as it is.

    What such an argument says is what is run (an expression, for one): yes to one is no yes to another.
    """
    tool = all_tools().get(call.tool)
    needs = tool is None or any(f.is_required() for f in tool.arguments.model_fields.values())
    return call.identity if needs else call.tool
