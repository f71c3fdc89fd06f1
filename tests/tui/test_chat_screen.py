"""The screen of a conversation as its user meets it: questions, checks, answers, views, commands, keys."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.pilot import Pilot
from traindoctor.tui.chat.actions import Actions
from traindoctor.tui.chat.card import Card
from traindoctor.tui.chat.screen import ChatScreen
from traindoctor.tui.chat.side import NAMES
from traindoctor.tui.commands import COMMANDS
from traindoctor.tui.messages import OpenEvidence

from tests.tui.house import answered, chat_app, opened, screen_of, shows, typed, words
from tests.tui.stage import DEMO, NARROW, WIDE, play, settled


def test_every_command_has_its_method() -> None:
    for command in COMMANDS:
        method = getattr(Actions, f"do_{command.name}", None)
        assert callable(method), command.name
    assert {m.removeprefix("do_") for m in dir(Actions) if m.startswith("do_")} == {c.name for c in COMMANDS}


def test_a_question_is_answered_its_checks_unfold_and_it_is_gone_on_with() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        shown = words(pilot)
        assert "> why did it die?" in shown and "hw.gpu_fell_off_bus  (confirmed" in shown
        assert "checks: " in shown and "found" in shown
        assert "hw.gpu_fell_off_bus confirmed" in shown.splitlines()[0], "the line on top has the verdict"
        assert not screen.query(Card), "what was made over everything is folded"
        await pilot.press("ctrl+o")
        await settled(pilot, lambda: len(screen.query(Card)) > 30)
        await pilot.press("ctrl+o")
        await settled(pilot, lambda: all(c.has_class("-open") for c in screen.query(Card)))
        card = next(c for c in screen.query(Card) if c.made.call.tool == "xid_errors")
        assert "Xid" in card.made.body().plain and "found" in card.made.head().plain
        await pilot.press("ctrl+o")
        await settled(pilot, lambda: not screen.query(Card))
        await answered(pilot, "why?")
        assert screen.talk and screen.talk.reports[-1].status == "answer"
        assert screen.talk.diagnosis and screen.talk.diagnosis.status == "confirmed"
        assert "hw.gpu_fell_off_bus confirmed" in words(pilot).splitlines()[0], "an answer does not take its place"

    play(chat_app(), story, WIDE, hook=False)


def test_a_check_by_name_is_a_card_of_its_own() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "/tool read-settings")
        (card,) = screen.query(Card)
        assert card.made.call.tool == "read_settings" and card.made.result is not None
        card.focus()
        await pilot.press("enter")
        assert card.has_class("-open")
        await pilot.press("space")
        assert not card.has_class("-open")
        await typed(pilot, "/tool red-settings")
        await shows(pilot, "did you mean read-settings?")

    play(chat_app(), story, WIDE, hook=False)


def test_each_view_takes_the_whole_room_where_it_is_narrow_and_esc_leads_back() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        await pilot.press("f2")
        assert screen.transcript.display, "beside the conversation"
        await pilot.press("escape")
        await pilot.resize_terminal(*NARROW)
        for number, name in enumerate(NAMES, 2):
            await pilot.press(f"f{number}")
            await settled(pilot, lambda name=name: screen.side.shown == name and screen.side.has_focus_within)
            assert f"[{name} f{number}]" in words(pilot) and not screen.transcript.display
            await pilot.press("escape")
            await settled(pilot, lambda: screen.prompt.has_focus_within)

    play(chat_app(), story, WIDE, hook=False)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Every check takes until it is stopped, or until this is called."""
    from traindoctor.agent.session import graph

    go, real = threading.Event(), graph.guarded

    def waits(tool: Any, ws: Any, args: Any, seconds: float, stopped: Callable[[], bool]) -> Any:
        while not (go.is_set() or stopped()):
            go.wait(0.02)
        return real(tool, ws, args, seconds, stopped)

    monkeypatch.setattr(graph, "guarded", waits)
    return go.set


def test_esc_stops_an_answer_and_the_next_question_goes_on(slow: Callable[[], None]) -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        await typed(pilot, "why did it die?")
        await settled(pilot, lambda: bool(screen.transcript.checks and screen.transcript.checks.running()))
        await shows(pilot, "esc stops")
        await pilot.press("escape")
        await shows(pilot, "Stopped. What was found so far is kept")
        assert screen.asking.now is None and screen.talk and not screen.talk.reports
        slow()
        await answered(pilot, "why did it die?")
        assert screen.talk.diagnosis and screen.talk.diagnosis.status == "confirmed"

    play(chat_app(), story, WIDE, hook=False)


def test_a_question_that_is_typed_meanwhile_waits_and_is_answered(slow: Callable[[], None]) -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        await typed(pilot, "why did it die?")
        await settled(pilot, lambda: screen.asking.now is not None)
        await typed(pilot, "are you sure?")
        await typed(pilot, "why?")
        await pilot.press("escape")
        await settled(pilot, lambda: screen.prompt.waiting == ["are you sure?"] and screen.prompt.text == "why?")
        slow()
        await settled(pilot, lambda: bool(screen.talk) and len(screen.talk.reports) == 2)
        assert screen.talk and [r.question for r in screen.talk.reports] == ["why did it die?", "are you sure?"]

    play(chat_app(), story, WIDE, hook=False)


def test_the_run_deleted_underneath_costs_a_line(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(DEMO, run)

    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        shutil.rmtree(run)
        for question in ("show logs/rank0.log:2", "and now? what is wrong with the loss"):
            await answered(pilot, question)
        for key in ("f2", "f3", "f4", "f5", "f6"):
            await pilot.press(key)
            await pilot.pause(0.05)
        await typed(pilot, "/evidence E146")
        await pilot.pause(0.2)
        await pilot.press("escape")
        await typed(pilot, "/resume")
        await shows(pilot, "no such path")
        assert screen_of(pilot) is screen

    play(chat_app(run), story, WIDE, hook=False)


@pytest.mark.parametrize(
    ("wanted", "told"),
    [({"session": "20200101-000000-abcdef"}, "no session"), ({"report": "no/such.json"}, "no report")],
)
def test_what_cannot_be_opened_is_told_and_the_chat_stays(wanted: dict[str, Any], told: str) -> None:
    async def story(pilot: Pilot[Any]) -> None:
        await shows(pilot, told)
        await typed(pilot, f"/run {DEMO}")
        await opened(pilot)
        await typed(pilot, "/run /no/such/place")
        await shows(pilot, "no such path")
        assert screen_of(pilot).talk

    play(chat_app(**wanted), story, WIDE, hook=False)


def test_without_a_run_a_term_is_explained() -> None:
    app = chat_app()
    app._wanted, app._question = None, "what does Xid 79 mean?"  # as the start screen hands it over

    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, reports=1)
        assert screen.talk and screen.talk.reports[0].status == "answer" and "79" in words(pilot)

    play(app, story, WIDE, hook=False)


def test_a_resize_storm_ends_where_it_began() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        await pilot.press("f2")
        await pilot.pause(0.1)
        before = words(pilot)
        for number in range(50):
            size = Size(30 + (number * 37) % 150, 6 + (number * 13) % 50)
            pilot.app.post_message(Resize(size, size))  # none of them is waited for
            if number % 10 == 9:
                await pilot.press(f"f{3 + number // 10 % 4}")
        await pilot.resize_terminal(160, 50)
        await pilot.press("f2")
        if not screen.side.has_focus_within:
            await pilot.press("f2")
        await settled(pilot, lambda: words(pilot) == before)

    play(chat_app(), story, WIDE, hook=False)


def test_an_older_session_file_is_a_line(tmp_path: Path) -> None:
    async def first(pilot: Pilot[Any]) -> None:
        await answered(pilot, "why did it die?")

    app = chat_app()
    play(app, first, WIDE, hook=False)
    name = next(p.stem for p in (app.state / "reports").glob("*.json"))
    (app.state / "reports" / f"{name}.json").write_text('{"schema": "traindoctor.report/0", "session": "x"}')
    (app.state / "reports" / name / "0001.json").write_text("{}")

    async def again(pilot: Pilot[Any]) -> None:
        await shows(pilot, "of another version")
        assert isinstance(pilot.app.screen, ChatScreen)

    play(chat_app(session=name), again, WIDE, hook=False)


def test_commands_that_cannot_be_done_yet_say_why() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        screen.post_message(OpenEvidence("E77"))  # of a diagnosis that is under way
        await shows(pilot, "evidence E77 is in no report yet")
        for line, told in (
            ("/report", "no diagnosis yet"), ("/copy", "nothing to copy yet"), ("/apply P1", "no diagnosis yet"),
            ("/export x.md", "nothing to export yet"), ("/nonsense", "no command /nonsense"), ("/allow write", "nothing writes unasked"),
            ("/theme no", "no theme no"), ("/model", "no model: the offline planner"), ("/session", "Nothing asked yet"),
        ):  # fmt: skip
            await typed(pilot, line)
            await shows(pilot, told)

    play(chat_app(), story, WIDE, hook=False)
