"""The prompt: what is typed is sent once, waits its turn, comes back by arrow keys, and steers nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Static
from traindoctor.agent.chat.chat_export import NAME, PastQuestions
from traindoctor.tui import keys, messages, themes
from traindoctor.tui.chat.completion import Known
from traindoctor.tui.chat.footer import KeyLine
from traindoctor.tui.chat.prompt import PLACEHOLDERS, Prompt
from traindoctor.tui.chat.prompt_text import PASTED
from traindoctor.tui.commands import is_command

from tests.tui.stage import NARROW, WIDE, Picture, Stage, play, settled

HOSTILE = "logs/evil \x1b]0;owned\x07[red]\u202e.log"
KNOWN = Known(
    files=["train.log", "logs/rank 3.log", HOSTILE, "ds_config.json", *(f"logs/n{i}/rank{i}.log" for i in range(40))],
    evidence=[("E1", "logs/rank3.log:812  Current loss scale already at minimum"), ("E2", "x\x1b[2J [bold]y[/bold]")],
    patches=[("P1", "ds_config.json  bf16 instead of fp16")],
)


class Board(Stage):
    """A prompt at the foot of a conversation, with the keys of everywhere."""

    CSS = "#talk { height: 1fr; }"
    BINDINGS = keys.bindings()

    def __init__(self, past: PastQuestions | None = None, theme: str = "doctor-dark") -> None:
        self.prompt, self.keys = Prompt(past, known=KNOWN), KeyLine()
        super().__init__(Static("the conversation", id="talk"), self.prompt, self.keys, theme=theme)
        themes.register(self)
        self.stopped = 0

    def action_stop(self) -> None:
        self.stopped += 1

    def sent(self) -> list[str]:
        """Questions and commands in order, each once."""
        found = {id(m): m for m in self.heard if isinstance(m, messages.Ask | messages.Command)}
        return [m.question if isinstance(m, messages.Ask) else m.line for m in found.values()]

    def told(self) -> list[str]:
        return list(dict.fromkeys(m.text for m in self.of(messages.Told)))


async def typed(pilot: Pilot[Any], text: str, *after: str) -> None:
    """Pasted: a press of each key costs the test a moment."""
    pilot.app.post_message(events.Paste(text))
    await pilot.pause()
    await pilot.press(*after)


def test_it_sends_waits_takes_back_and_goes_through_what_was_asked(tmp_path: Path) -> None:
    PastQuestions(tmp_path).keep("of another chat")
    app = Board(PastQuestions(tmp_path))

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await settled(pilot, lambda: app.prompt._past.questions)
        await typed(pilot, "why?", "enter", "enter")
        await typed(pilot, "two\nlines", "enter")
        assert app.sent() == ["why?", "two\nlines"] and app.prompt.text == ""

        app.prompt.under_way(True)
        await typed(pilot, "are you sure?", "enter")
        await typed(pilot, "next", "enter")
        await typed(pilot, "/stop", "enter")  # a command does not wait
        assert app.sent()[2:] == ["/stop"] and app.prompt.waiting == ["are you sure?", "next"]
        await pilot.press("escape")  # the last that waits comes back into the line
        assert app.prompt.text == "next" and app.prompt.waiting == ["are you sure?"] and not app.stopped
        await pilot.press("escape")  # the line is not empty: esc is for the screen
        assert app.stopped == 1
        await pilot.press("ctrl+u")
        app.prompt.queue("then this")
        app.prompt.under_way(False)
        app.prompt.under_way(False)
        await pilot.pause()
        assert app.sent()[3:] == ["are you sure?"] and app.prompt.waiting == ["then this"]  # one answer each
        app.prompt.waiting.clear()

        await typed(pilot, "half", "up", "up")
        assert app.prompt.text == "next"
        await pilot.press("up", "up", "up", "up")  # through the lines of a question, then on
        assert app.prompt.text == "why?"
        await pilot.press("up", "up", "up")
        assert app.prompt.text == "of another chat"
        await pilot.press(*["down"] * 8)
        assert app.prompt.text == "half"
        await pilot.press("ctrl+u")
        await typed(pilot, " /mnt/run is what?", "enter")  # a space before it: a question
        assert app.sent()[-1] == "/mnt/run is what?" and not is_command(" /mnt")
        await settled(pilot, lambda: PastQuestions(tmp_path).all()[-1:] == ["/mnt/run is what?"])
        assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600

    play(app, story, NARROW)


def test_a_paste_is_one_question_inert_and_bounded() -> None:
    app = Board()

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await pilot.pause()
        app.post_message(events.Paste("line 1\r\nline 2 \x1b[31m[red]\u202e\rline 3"))
        await pilot.pause()
        assert app.prompt.text == "line 1\nline 2 \\x1b[31m[red]\\u202e\nline 3" and not app.sent()
        await pilot.press("enter")
        assert len(app.sent()) == 1
        app.post_message(events.Paste("x y " * 4_000_000))
        await settled(pilot, app.told)
        assert "16,000,000 characters" in app.told()[0] and len(app.prompt.text) == PASTED
        assert app.prompt.size.height <= 8  # it grows to six lines
        await pilot.press("enter")
        assert len(app.sent()[1]) == PASTED - 1  # its last space

    play(app, story, NARROW)


def test_type_ahead_is_sent_as_it_was_typed() -> None:
    app = Board()

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await pilot.pause()
        for c in "a\rb\r/quit\r":  # no pause between the keys, as a slow line delivers them
            app.post_message(events.Key("enter" if c == "\r" else {"/": "slash"}.get(c, c), c))
        await settled(pilot, lambda: len(app.sent()) == 3)
        assert app.sent() == ["a", "b", "/quit"]

    play(app, story)


def test_what_can_be_asked_is_said_and_what_cannot_be_kept_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    app = Board(PastQuestions(tmp_path / "file"))

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        for stage, words in PLACEHOLDERS.items():
            app.prompt.stage(stage)
            await pilot.pause()
            assert str(app.prompt._text.placeholder) == words and len(words) <= 78
        await typed(pilot, "why?", "enter")
        await settled(pilot, app.told)
        assert app.told()[0].startswith("questions are not kept for later chats: ")

    play(app, story)


@pytest.mark.parametrize(("name", "theme", "size"), [
    ("dark", "doctor-dark", WIDE), ("light", "doctor-light", NARROW), ("no_color", "doctor-dark", NARROW),
])  # fmt: skip
def test_pictures(
    name: str, theme: str, size: tuple[int, int], picture: Picture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "no_color":
        monkeypatch.setenv("NO_COLOR", "1")
    app = Board(theme=theme)

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await pilot.pause()
        if name != "light":  # each state once, the telling ones in every look
            await picture(pilot, f"{name}_empty")
        await typed(pilot, "/", "down")
        await pilot.pause()
        await picture(pilot, f"{name}_commands")
        app.prompt.under_way(True)
        app.keys.busy = True
        app.prompt.load("")
        app.prompt.queue("why \x1b[31m[red]?\n" + "and " * 60)
        await typed(pilot, "show @ev")
        await pilot.pause()
        await picture(pilot, f"{name}_files_while_one_waits")
        app.prompt.load("")
        await typed(pilot, "/evidence ", "down", "down")
        await pilot.pause()
        if name != "no_color":
            await picture(pilot, f"{name}_evidence")

    play(app, story, size)


def test_what_is_taken_back_and_typed_again_keeps_its_order_while_the_screen_is_busy() -> None:
    prompt = Prompt()

    async def story(pilot: Pilot[Any]) -> None:
        prompt.focus()
        await pilot.press("x")
        for key, character in (
            ("backspace", None),
            ("a", "a"),
            ("backspace", None),
            ("b", "b"),
            ("left", None),
            ("c", "c"),
        ):
            prompt._text.post_message(events.Key(key, character))  # all of them before anything is answered
        await settled(pilot, lambda: prompt.text == "cb")

    play(Stage(prompt), story, NARROW)
