"""Help, footer and palette: made from the tables and bindings, so that nothing that works is left out."""

from __future__ import annotations

from typing import Any

import pytest
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Input, OptionList
from traindoctor.tui import keys, messages, themes
from traindoctor.tui.app import DoctorApp
from traindoctor.tui.chat.actions import Actions
from traindoctor.tui.chat.footer import KeyLine
from traindoctor.tui.chat.palette import SlashCommands
from traindoctor.tui.chat.prompt import Prompt
from traindoctor.tui.chat.prompt_text import PromptText
from traindoctor.tui.chat.screen import ChatScreen
from traindoctor.tui.commands import COMMANDS
from traindoctor.tui.dialogs.help import HelpScreen, sections
from traindoctor.tui.panels.panel import Panel

from tests.tui.stage import NARROW, WIDE, Picture, Stage, play, settled


class Lines(Panel):
    """A view with keys of its own, and a list within."""

    NAME = "evidence"
    BINDINGS = [Binding("o", "open", "open the file"), Binding("n,N", "note", "", show=False)]  # noqa: RUF012

    def compose(self):
        yield OptionList("a", "b")


class Board(Stage):
    """What a screen of the chat has, as far as keys go."""

    CSS = "Lines { height: 1fr; }"
    BINDINGS = keys.bindings()
    COMMANDS = {SlashCommands}  # noqa: RUF012

    def __init__(self, theme: str = "doctor-dark") -> None:
        self.prompt, self.keys = Prompt(), KeyLine()
        super().__init__(Lines(), self.prompt, self.keys, theme=theme)
        themes.register(self)

    def action_help(self) -> None:
        self.push_screen(HelpScreen.of(self.screen))

    def footer(self) -> str:
        return str(self.keys.render())


async def chosen(pilot: Pilot[Any], words: str) -> None:
    """Type into the palette and take the first that it finds."""
    await pilot.press("ctrl+p")
    screen = pilot.app.screen
    screen.query_one(Input).value = words
    await settled(pilot, lambda: (rows := screen.query_one(OptionList)).option_count == 1 and rows.highlighted == 0)
    await pilot.press("enter")
    await settled(pilot, lambda: pilot.app.screen is not screen)


def test_each_key_that_is_bound_is_in_the_help() -> None:
    app = Board()

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await pilot.pause()
        found = sections(app.screen)
        listed = {k for s in found if s.title.startswith("Keys") for keys_, _ in s.rows for k in keys_.split(", ")}
        for node in [app, app.screen, *app.screen.walk_children()]:
            for key, binding in node._bindings:
                assert keys.spelt(key) in listed or binding.action == "help_quit", (node, key)
        assert [s.title for s in found][:4] == [
            "Keys everywhere",
            "Commands",
            "What can be asked",
            "What the marks mean",
        ]
        assert ("n, N", "note") in next(
            s for s in found if s.title == "Keys: evidence"
        ).rows  # without a word of its own
        app.screen.query_one(OptionList).focus()
        await pilot.pause()
        assert sections(app.screen)[0].title == "Keys: evidence"  # the part that has the focus comes first

    play(app, story)


def test_no_key_of_the_prompt_takes_one_of_everywhere() -> None:
    of_prompt = {k for b in PromptText.BINDINGS for k in b.key.split(",")}  # pyright: ignore
    everywhere = {k for g in keys.GLOBAL_KEYS for k in g.keys}
    assert of_prompt & everywhere == {"escape", "tab", "ctrl+c"}  # passed on where the prompt has no use for them
    assert len(everywhere) == sum(len(g.keys) for g in keys.GLOBAL_KEYS)
    words = [w for c in COMMANDS for w in (c.name, *c.aliases)]
    assert len(words) == len(set(words)) and all(c.example.startswith("/") and c.about for c in COMMANDS)


def test_what_help_names_is_there() -> None:
    for key in keys.GLOBAL_KEYS:
        where, _, action = key.action.partition("(")[0].rpartition(".")
        assert hasattr(DoctorApp if where == "app" else ChatScreen, f"action_{action}"), key.action
    assert not [c.name for c in COMMANDS if not hasattr(Actions, f"do_{c.name}")]


def test_the_footer_says_what_the_focus_can_do_and_never_a_part_of_it() -> None:
    app = Board()

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await pilot.pause()
        assert app.footer().startswith("enter send  ^j new line  ") and app.footer().endswith("^p palette  f1 help")
        assert "esc stop" not in app.footer()
        app.keys.busy = True
        assert "esc stop" in app.footer()
        app.screen.query_one(OptionList).focus()
        await pilot.pause()
        assert app.footer().startswith("o open the file") and "send" not in app.footer()
        for width in (160, 80, 60, 40, 24, 8):
            await pilot.resize_terminal(width, 24)
            await pilot.pause()
            assert len(app.footer()) <= width - 2 and app.keys.size.height == 1
        assert app.footer() == ""
        await pilot.resize_terminal(40, 24)
        await pilot.pause()
        assert app.footer().endswith("^p palette  f1 help")

    play(app, story)


def test_the_palette_finds_commands_and_carries_them_out() -> None:
    app = Board()

    async def story(pilot: Pilot[Any]) -> None:
        await pilot.press("ctrl+p")
        rows = app.screen.query_one(OptionList)
        await settled(pilot, lambda: rows.option_count == len(COMMANDS))
        assert all(c.usage in str(o.prompt) for c, o in zip(COMMANDS, rows.options, strict=True))  # brackets too
        await pilot.press("escape")
        await chosen(pilot, "hypoth")
        assert {m.line for m in app.of(messages.Command)} == {"/hypotheses"}
        await chosen(pilot, "healthy")  # by a word about it; it needs a path
        assert app.prompt.text == "/good " and app.prompt.has_focus_within

    play(app, story)


@pytest.mark.parametrize(("name", "theme", "size"), [
    ("dark", "doctor-dark", WIDE), ("light", "doctor-light", NARROW), ("contrast", "doctor-contrast", NARROW),
])  # fmt: skip
def test_pictures_and_search(name: str, theme: str, size: tuple[int, int], picture: Picture) -> None:
    app = Board(theme)

    async def story(pilot: Pilot[Any]) -> None:
        app.prompt.focus()
        await pilot.press("f1")
        await pilot.pause()
        await picture(pilot, f"{name}_help")
        screen = app.screen
        assert isinstance(screen, HelpScreen)
        await pilot.press("pagedown", "down")
        assert screen._scroll.scroll_y > 0 or size == WIDE
        await pilot.press(*"apply")
        await pilot.pause()
        if name == "light":
            await picture(pilot, f"{name}_help_search")
        page = str(screen._page.content)
        assert "/apply [P1 ...]" in page and "/theme" not in page and screen._scroll.scroll_y == 0
        screen.query_one(Input).value = "[red]\x1b[31m no such thing"
        await pilot.pause()
        assert str(screen._page.content) == "nothing here has these words"
        await pilot.press("escape")
        assert app.screen is not screen and app.prompt.has_focus_within

    play(app, story, size)
