"""The chat as a program for tests: on the demo or another run, with no model, a scripted one, or a faulty one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from traindoctor.agent.chat.talk import Wanted
from traindoctor.agent.core.config import settle
from traindoctor.agent.doors.commands.chat_command import ChatHouse
from traindoctor.agent.session.store import usable_state
from traindoctor.tui.app import DoctorApp
from traindoctor.tui.chat.screen import ChatScreen

from tests.tui.stage import DEMO, settled


def chat_app(*roots: Path, question: str = "", model: Any = None, watch: bool = False, **wanted: Any) -> DoctorApp:
    """The program with a run open; the demo where none is named. `wanted` as `Wanted` takes it."""
    state = usable_state()[0]
    named = {"": model} if not isinstance(model, dict) else model
    house = ChatHouse(settle(), state, lambda name: named.get(name, named[""]), wanted.pop("allow", "read"))
    paths = () if wanted.get("session") or wanted.get("report") else tuple(map(str, roots or (DEMO,)))
    return DoctorApp(house, state, replace(Wanted(paths=paths), **wanted), question, watch)


def screen_of(pilot: Pilot[Any]) -> ChatScreen:
    """The conversation, whatever lies over it."""
    return next(s for s in pilot.app.screen_stack if isinstance(s, ChatScreen))


async def opened(pilot: Pilot[Any]) -> ChatScreen:
    """The screen once its run is open."""
    await settled(pilot, lambda: any(isinstance(s, ChatScreen) and s.talk for s in pilot.app.screen_stack))
    return screen_of(pilot)


async def typed(pilot: Pilot[Any], text: str) -> None:
    """Type a line and send it."""
    screen = screen_of(pilot)
    screen.prompt.load(text)
    screen.prompt.focus()
    await pilot.press("enter")


async def answered(pilot: Pilot[Any], question: str = "", reports: int = 0) -> ChatScreen:
    """Ask, and wait for the answer."""
    screen = await opened(pilot)
    talk = screen.talk
    assert talk is not None
    count = reports or len(talk.reports) + 1
    if question:
        await typed(pilot, question)
    await settled(pilot, lambda: len(talk.reports) >= count and screen.asking.now is None)
    return screen


def words(pilot: Pilot[Any]) -> str:
    """All that stands on the screen, row by row."""
    screen = pilot.app.screen
    width, height = screen.size
    rows = screen._compositor.render_strips(screen.size) if hasattr(screen._compositor, "render_strips") else []
    assert width and height
    return "\n".join("".join(s.text for s in row) for row in rows)


async def shows(pilot: Pilot[Any], text: str, seconds: float = 90.0) -> None:
    """Wait until a text stands on the screen."""
    await settled(pilot, lambda: text in words(pilot), seconds)
