"""The start screen: what was diagnosed, what lies near, what can be asked; all of it by keyboard."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key
from textual.widgets import Static
from traindoctor.agent.chat import recent_places
from traindoctor.tui.start.messages import Opened
from traindoctor.tui.start.recent_list import RecentList
from traindoctor.tui.start.screen import StartScreen

from tests.tui.kept_sessions import NOW, every_kind
from tests.tui.stage import NARROW, WIDE, Stage, play, settled


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Path]:
    """A state folder and a folder with runs."""
    return every_kind(tmp_path)


def start(state: Path, here: Path) -> StartScreen:
    return StartScreen(state, here, lambda: NOW)


async def filled(pilot: Any, rows: int = 9) -> None:
    """Wait until everything that there is was found, and looked at."""
    recent = pilot.app.screen.query_one(RecentList)
    await settled(pilot, lambda: recent.option_count == rows and all(
        e.there is not None or not e.roots or e.foreign for e in recent._found.values()))  # fmt: skip
    await settled(pilot, lambda: pilot.app.screen._seen)


def text_of(pilot: Any, part: str = "") -> str:
    """What is drawn, as text; of one part by its selector."""
    if part:
        return str(pilot.app.screen.query_one(part, Static).visual)
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


def opened(app: Stage) -> list[Opened]:
    return app.of(Opened)


def test_what_was_diagnosed_is_listed_and_opened_by_keyboard(kept: tuple[Path, Path]) -> None:
    state, here = kept
    app = Stage()

    async def story(pilot: Any) -> None:
        await app.push_screen(start(state, here))
        await filled(pilot)
        drawn = text_of(pilot)
        for words in ("confirmed", "left at: py_spy pid=123", "! gone: gone", "in exp42", "other version", "damaged",
                      "exp42", "2 logs, metrics", "What can be asked", "Earlier diagnoses (9)"):  # fmt: skip
            assert words in drawn, words
        assert "\x1b" not in drawn and "\\x1b[31mred" in drawn and "\u202e" not in drawn
        await pilot.press("down")
        assert "> confirmed" in text_of(pilot), "a mark, not a colour alone"
        await pilot.press("down", "enter")
        assert opened(app)[-1] == Opened(session="20260304-041500-e5f6a7")
        assert "waits for your yes to py_spy pid=123" in text_of(pilot, "#details")
        await pilot.press("down", "down", "down", "enter")
        assert opened(app)[-1] == Opened(report=here / "exp42" / "doctor-report.json")
        await pilot.press("end", "enter")
        assert len(opened(app)) == 2 and "! " in text_of(pilot, "#hint") and "damaged" in text_of(pilot, "#hint")
        await pilot.press("tab", "enter")
        assert opened(app)[-1] == Opened(path=here / "exp42")
        await pilot.press("tab", "enter")
        assert pilot.app.screen.query_one("#line").value == "Why did it die?" and len(opened(app)) == 3
        await pilot.press("enter")
        await settled(pilot, lambda: len(opened(app)) == 4)
        assert opened(app)[-1] == Opened(question="Why did it die?")
        await pilot.press("down", "enter")
        assert opened(app)[-1] == Opened(path=here / "exp42", question="Why did it die?"), "asked about that run"
        app.screen.tell("the run is \x1b[31m[bold]gone")
        await pilot.pause()
        assert "! the run is \\x1b[31m[bold]gone" in text_of(pilot)

    play(app, story)


def test_a_path_is_typed_completed_and_walked(kept: tuple[Path, Path]) -> None:
    state, here = kept
    app = Stage()
    (here / "exp42" / "od\x1b[31md").mkdir()

    async def story(pilot: Any) -> None:
        await app.push_screen(start(state, here))
        await filled(pilot)
        line, places = pilot.app.screen.query_one("#line"), pilot.app.screen.query_one("#places")
        await pilot.press(*"./ex", "tab")
        await settled(pilot, lambda: line.value == "./exp42/" and places.option_count == 6)
        assert "In ./exp42/ (6)" in text_of(pilot) and "od\\x1b[31md/" in text_of(pilot)
        await settled(pilot, lambda: "enter opens" in text_of(pilot, "#hint"))
        await pilot.press("tab")
        await settled(pilot, lambda: places.has_focus)
        await pilot.press("down", "right")
        await settled(pilot, lambda: line.value == "./exp42/logs/" and places.option_count == 2)
        await pilot.press("left")
        await settled(pilot, lambda: line.value == f"{here}/exp42/" and places.option_count == 6)
        await pilot.press("down", "down", "down", "enter")
        assert opened(app).pop() == Opened(report=here / "exp42" / "doctor-report.json")
        app.heard.clear()
        await pilot.press("left")
        await settled(pilot, lambda: line.value == f"{here}/" and places.option_count == 2)
        await pilot.press("down", "enter")
        assert opened(app)[-1] == Opened(path=here / "sweeps")
        await pilot.press("escape", "escape")
        assert line.value == "" and line.has_focus
        assert "Runs near" in text_of(pilot)
        await pilot.press(*"no/such", "enter")
        await settled(pilot, lambda: "! no such folder or file: no/such" in text_of(pilot, "#hint"))
        assert len(opened(app)) == 1
        line.value = "exp"
        await settled(pilot, lambda: "tab completes" in text_of(pilot, "#hint") and places.option_count == 1)
        line.value = "a\x1b[31m\u202eb"
        assert line.value == "a\\x1b[31m\\u202eb"
        line.value = "exp42"
        await pilot.press("enter")
        await settled(pilot, lambda: len(opened(app)) == 2)
        assert opened(app)[-1] == Opened(path=here / "exp42"), "a name that is there is a path"
        line.value, before = "", len(opened(app))
        for key in ("down", "down", "enter"):  # at once, as it is typed ahead
            app.post_message(Key(key, None))
        await settled(pilot, lambda: len(opened(app)) > before)
        assert opened(app)[-1].session and len(opened(app)) == before + 1
        line.focus()
        await pilot.press("down", "x")
        assert line.has_focus and line.value == "x", "what is typed over a list goes to the line"

    play(app, story, size=NARROW)


def test_pictures(picture: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    state, here = every_kind(Path())

    async def story(pilot: Any) -> None:
        await pilot.app.push_screen(start(state, here))
        await filled(pilot)
        await picture(pilot, "wide_dark")
        await pilot.press("down", "down")
        pilot.app.theme = "textual-light"
        await pilot.resize_terminal(*NARROW)
        await pilot.pause()
        await picture(pilot, "narrow")
        await pilot.press("tab", "tab", "down")
        await pilot.pause()
        await picture(pilot, "narrow_examples")

    play(Stage(), story, size=WIDE)


def test_nothing_there_and_no_colour(picture: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty state folder, a folder that was deleted; then one that never answers."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "state" / "reports").mkdir(parents=True)
    never = threading.Event()
    app = Stage()

    async def story(pilot: Any) -> None:
        await app.push_screen(start(tmp_path / "state", Path("deleted")))
        await settled(pilot, lambda: app.screen._seen)
        await settled(pilot, lambda: "none yet" in text_of(pilot))
        await picture(pilot, "empty_no_colour")
        await pilot.press("down", "enter", "tab", "enter", "right", "left")
        await settled(pilot, lambda: "In ./ (0)" in text_of(pilot))
        await pilot.press("tab", "down")
        await picture(pilot, "example_no_colour")
        assert not opened(app)
        monkeypatch.setattr(recent_places, "look_around", lambda *a, **k: never.wait())
        await app.push_screen(start(tmp_path / "state", Path("/dead")))
        await pilot.press(*"hello?")
        app.screen._silent()
        assert "! /dead does not answer yet" in text_of(pilot)
        await pilot.press("enter")
        await settled(pilot, lambda: opened(app))
        assert opened(app) == [Opened(question="hello?")]

    play(app, story, size=NARROW)
    never.set()


def test_a_bug_in_the_lists_is_a_line(kept: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    app = Stage()
    monkeypatch.setattr(recent_places, "look_around", lambda *a, **k: 1 / 0)
    monkeypatch.setattr("traindoctor.agent.chat.recent.sessions", lambda state: 1 / 0)

    async def story(pilot: Any) -> None:
        await app.push_screen(start(*kept))
        await settled(pilot, lambda: text_of(pilot).count("bug in doctor: ZeroDivisionError") == 2)

    play(app, story)
