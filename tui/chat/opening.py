"""Opening a run on a thread: walking its folder may take minutes, or never end on a dead server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from textual.message import Message

from ...agent.chat.talk import Wanted
from ...agent.core.errors import DoctorError

if TYPE_CHECKING:
    from ...agent.chat.talk import Conversation
    from ...agent.session.session import Unfinished
    from .joined import JoinedScreen


@dataclass
class Opened(Message):
    """A run is open. `unfinished`: its session was left before its report."""

    talk: Conversation
    unfinished: Unfinished | None = None
    question: str = ""
    watch: bool = False
    told: list[str] = field(default_factory=list)


@dataclass
class Refused(Message):
    """It could not be opened."""

    why: str


class Opening:
    """Opens one run at a time; a later one, or esc, lets the earlier be."""

    def __init__(self, screen: JoinedScreen) -> None:
        self._screen = screen
        self._number = 0
        self.busy = False

    def begin(self, wanted: Wanted, question: str = "", watch: bool = False) -> None:
        """Open a run; the screen hears of it by `Opened` or `Refused`."""
        self._number += 1
        self.busy = True
        what = "opening " + (", ".join(wanted.paths) or wanted.session or "the knowledge")
        self._screen.activity.begin(what, None, lambda: None)
        threading.Thread(
            target=self._work, args=(wanted, question, watch, self._number), name="opening", daemon=True
        ).start()  # fmt: skip

    def stop(self) -> None:
        """Do not wait for it any more."""
        self._number += 1
        self.busy = False
        self._screen.post_message(Refused("not opened: stopped"))

    def _work(self, wanted: Wanted, question: str, watch: bool, number: int) -> None:
        message: Message
        try:
            talk = self._screen.program.house.open(wanted)
            message = Opened(talk, _unfinished(talk), question, watch, _told(talk))
        except (DoctorError, OSError) as e:
            message = Refused(str(e))
        except Exception as e:  # noqa: BLE001 - a bug of ours is told; the chat stays
            message = Refused(f"bug in doctor: {type(e).__name__}: {e}")
        if number == self._number:
            self.busy = False
            self._screen.post_message(message)


def _unfinished(talk: Conversation) -> Unfinished | None:
    if not talk.session:
        return None
    from ...agent.session.session import unfinished

    return unfinished(talk.state, talk.session)


def _told(talk: Conversation) -> list[str]:
    """What is looked at, in a line or two."""
    ws = talk.workspace
    if not ws.roots:
        return ["No run is named: questions are answered from what doctor knows. /run PATH looks at one."]
    roles: dict[str, int] = {}
    for file in ws.files:
        roles[file.role] = roles.get(file.role, 0) + 1
    most = sorted(roles.items(), key=lambda kv: -kv[1])
    told = [f"{talk.title}: {len(ws.files):,} files ({', '.join(f'{n:,} {role}' for role, n in most)})"]
    if ws.skipped:
        told.append(f"{len(ws.skipped)} could not be read; the first: {ws.skipped[0][0]}: {ws.skipped[0][1]}")
    if talk.session:
        told.append(f"going on with session {talk.session}")
    return [*told, *talk.told, *talk.notes]
