"""What tests of the chat share: a stage for one part of the screen, a run to talk about, pictures to compare with.

def test_it(picture, talk):
    panel = EvidencePanel()

    async def story(pilot):
        panel.begin(talk())
        panel.show(sample())
        await pilot.press("down", "enter")
        await picture(pilot, "opened")

    play(Stage(panel), story, size=(80, 24))
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from textual._compositor import Compositor
from textual._context import active_app, visible_screen_stack
from textual.app import App, ComposeResult
from textual.message import Message
from textual.pilot import Pilot
from textual.widget import Widget
from traindoctor.agent.chat.talk import Conversation
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.store import usable_state

ROOT = Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "evals" / "demo" / "files"
WIDE, NARROW = (160, 50), (80, 24)
LOOK = 0.01  # seconds between two looks at whether the program still does something
_FONTS = re.compile(r"@font-face \{[^}]*\}\s*")

Story = Callable[[Pilot[Any]], Awaitable[None]]
Picture = Callable[[Pilot[Any], str], Awaitable[None]]


class Stage(App[None]):
    """An application of nothing but the given parts. `heard` keeps the messages that they posted, in order."""

    CSS_PATH = ROOT / "tui" / "doctor.tcss"

    def __init__(self, *parts: Widget, theme: str = "textual-dark") -> None:
        super().__init__()
        self._parts = parts
        self._look = theme
        self.heard: list[Message] = []

    def compose(self) -> ComposeResult:
        yield from self._parts

    def on_mount(self) -> None:
        self.theme = self._look

    def of(self, kind: type) -> list[Any]:
        """The messages of a kind, in order."""
        return [m for m in self.heard if isinstance(m, kind)]


def play(app: App[Any], story: Story, size: tuple[int, int] = WIDE, hook: bool = True) -> None:
    """Run an application without a terminal and act on it; what it raises fails the test."""

    async def run() -> None:
        hear = app.heard.append if hook and isinstance(app, Stage) else None
        async with app.run_test(size=size, message_hook=hear) as pilot:
            await story(pilot)

    asyncio.run(run())


async def settled(pilot: Pilot[Any], holds: Callable[[], object], seconds: float = 90.0) -> None:
    """Wait until something holds. No test of the chat sleeps for a fixed time."""
    end = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert pilot.app._exception is None, "the program has ended by a fault"
        assert asyncio.get_running_loop().time() < end, "it never came about"
        await asyncio.sleep(0.03)  # a `pause` would call back each of hundreds of widgets
    await pilot.pause()


async def drawn(min_sleep: float = 0.02, max_sleep: float = 1.0) -> None:
    """What a pilot waits for after a key, of the thread that draws alone: a check beside it is not waited for.

    A thread that gets no processor looks like one that has nothing to do. So its sleep must also end on time, and no
    message may wait; on a starved machine this is waited for ten times as long. Then the screen is drawn, once.
    """
    start = time.monotonic()
    while True:
        used, asleep = time.thread_time(), time.monotonic()
        await asyncio.sleep(LOOK)
        now = time.monotonic()
        starved = now - asleep > 2 * LOOK or _waiting()
        late = now - start >= (10 * max_sleep if starved else max_sleep)
        if late or (now - start > min_sleep and not starved and time.thread_time() - used < LOOK / 20):
            return _draw()


def _draw() -> None:
    """Draw what changed on the screen, as would be done sixty times a second: what cannot be drawn fails the test."""
    app = active_app.get(None)
    if app is None or not app._running or not app.screen_stack or not app.screen.size:
        return
    compositor = app.screen._compositor
    if compositor._dirty_regions:
        visible_screen_stack.set(app._background_screens)
        compositor.render_partial_update()


def nothing_drawn(compositor: Compositor, full: bool = False, screen_stack: Any = None, simplify: bool = False) -> Any:
    """In place of `render_update`: nobody sees what a program without a terminal draws between two looks at it."""
    visible_screen_stack.set(screen_stack or [])
    return compositor.render_full_update(simplify=simplify) if full else None


async def heard(pilot: Pilot[Any], timeout: float = 30.0) -> bool:
    """In place of a callback of each of hundreds of widgets, which `drawn` makes needless: one of the screen."""
    called = asyncio.Event()
    if pilot.app._exception is None and pilot.app.screen_stack and pilot.app.screen.call_later(called.set):
        ended = asyncio.create_task(pilot.app._exception_event.wait())
        await asyncio.wait([ended, asyncio.create_task(called.wait())], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
    return pilot.app._exception is None


def _waiting() -> bool:
    """Whether a message waits for the application or a part of its screen."""
    app = active_app.get(None)
    if app is None or not app._running or not app.screen_stack:
        return False
    return any(not part._message_queue.empty() for part in (app, *app.screen.walk_children(with_self=True)))


def talk_about(*roots: Path, **more: Any) -> Conversation:
    """A conversation about a run: the demo where none is named."""
    return Conversation(Workspace(list(roots) or [DEMO], live=False), usable_state()[0], **more)


def svg(app: App[Any]) -> str:
    """The screen as it is drawn now, without the fonts that a browser would fetch."""
    return _FONTS.sub("", app.export_screenshot(title="doctor"))
