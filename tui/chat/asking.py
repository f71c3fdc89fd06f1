"""Questions answered one after the other on a thread of their own; the screen hears of it by messages."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from ...agent.core.errors import DoctorError, Stopped
from ...agent.core.events import Event, Note, Token
from ...agent.core.types import Call

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation

_MOST = 4_000  # characters of events that are put together


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A question that waits or is being answered; `calls` are checks that the user named."""

    question: str
    calls: tuple[Call, ...] = ()


@dataclass
class Began(Message):
    """A question is being answered now."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the answer; `asked` tells which, as those of one that was left come late."""

    asked: Asked
    event: Event


@dataclass(frozen=True, slots=True)
class Ended:
    """An answer is over; `trouble` says why there is no report."""

    asked: Asked
    trouble: str = ""
    stopped: bool = False


class Asking:
    """The questions of one conversation. Its methods are called on the thread of the screen."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self._post = post
        self._heard: queue.SimpleQueue[Happened | Ended] = queue.SimpleQueue()
        self.waiting: deque[Asked] = deque()
        self.now: Asked | None = None
        self.stop_now = threading.Event()
        self._talk: Conversation | None = None

    def begin(self, talk: Conversation | None) -> None:
        """Another conversation: what was asked of the one before is dropped."""
        self.waiting.clear()
        self.stop()
        self.now, self._talk = None, talk

    def put(self, asked: Asked, approve: Callable[[threading.Event], Callable[..., object]]) -> None:
        """Answer a question, after those before it.

        Args:
            approve: makes the function that is asked about calls above the allowed risk; given what stops the answer.
        """
        self.waiting.append(asked)
        self._approve = approve
        self.go_on()

    def stop(self) -> bool:
        """End the answer that is under way; whether there was one."""
        self.stop_now.set()
        return self.now is not None

    def go_on(self) -> None:
        """Begin the next question, unless one is under way."""
        if self.now is not None or not self.waiting or self._talk is None:
            return
        self.now, self.stop_now = self.waiting.popleft(), threading.Event()
        approve = self._approve(self.stop_now)
        work = threading.Thread(
            target=self._work, args=(self._talk, self.now, approve, self.stop_now), name="answer", daemon=True
        )
        self._post(Began(self.now))
        work.start()

    def ended(self) -> None:
        """The screen has heard that an answer is over: the next one may begin."""
        self.now = None
        self.go_on()

    @property
    def backlog(self) -> int:
        """How much the thread has said that was not taken yet."""
        return self._heard.qsize()

    @property
    def silent(self) -> bool:
        """Whether the thread has said nothing since."""
        return self._heard.empty()

    def heard(self, wanted: Callable[[], bool]) -> Iterator[Happened | Ended]:
        """What the thread has said since it was asked last; words of a model and notes that came together as one.

        Args:
            wanted: whether there is time for more; the rest waits.
        """
        held: Happened | None = None
        while not self._heard.empty() and wanted():
            said = self._heard.get()
            if held is not None and (joined := _joined(held, said)) is not None:
                held = joined
                continue
            if held is not None:
                yield held
            held = said if isinstance(said, Happened) and isinstance(said.event, Token | Note) else None
            if held is None:
                yield said
        if held is not None:
            yield held

    def _work(
        self, talk: Conversation, asked: Asked, approve: Callable[..., object], stop: threading.Event
    ) -> None:  # fmt: skip
        trouble = ""
        try:
            events = talk.ask(
                asked.question, approve=approve, stop=stop, calls=asked.calls, watched=True,  # pyright: ignore
            )  # fmt: skip
            for event in events:
                if stop.is_set():
                    break
                self._heard.put(Happened(asked, event))
        except Stopped:
            stop.set()
        except (DoctorError, OSError) as e:
            trouble = str(e)
        except Exception as e:  # noqa: BLE001 - a bug of ours costs this answer, never the conversation
            trouble = f"bug in doctor: {type(e).__name__}: {e}"
        self._heard.put(Ended(asked, trouble, stopped=stop.is_set() and not trouble))


def _joined(first: Happened, then: Happened | Ended) -> Happened | None:
    """Two events as one, where they are of a kind that may be: a screen cannot draw each of thousands a second."""
    if not isinstance(then, Happened) or then.asked is not first.asked:
        return None
    match first.event, then.event:
        case Token(one), Token(other) if len(one) < _MOST:
            return Happened(first.asked, Token(one + other))
        case Note(one, of_call), Note(other, of_call_too) if of_call == of_call_too and len(one) < _MOST:
            return Happened(first.asked, Note(f"{one}\n{other}", of_call))
    return None
