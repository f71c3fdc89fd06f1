"""Every key and every command of the tables, pressed and typed on the whole program; every binding of a part is known."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from textual.binding import Binding
from textual.dom import DOMNode
from textual.pilot import Pilot
from traindoctor import tui
from traindoctor.tui.commands import COMMANDS
from traindoctor.tui.dialogs import change
from traindoctor.tui.dialogs.help import HelpScreen
from traindoctor.tui.keys import GLOBAL_KEYS

from tests.tui.house import answered, chat_app, screen_of, shows, typed, words
from tests.tui.stage import DEMO, ROOT, WIDE, play, settled

PATCHED = ROOT / "evals" / "incidents" / "dist-vlm-bucket-sizes-differ" / "files"
NAMES = ("evidence", "hypotheses", "curves", "ranks", "repairs")


# --- keys of everywhere


async def _help(pilot: Pilot[Any], key: str) -> None:
    await pilot.press(key)
    assert isinstance(pilot.app.screen, HelpScreen)
    await pilot.press(key)
    assert not isinstance(pilot.app.screen, HelpScreen)


async def _palette(pilot: Pilot[Any], key: str) -> None:
    await pilot.press(key)
    await shows(pilot, "/run PATH")
    await pilot.press("escape")
    await settled(pilot, lambda: pilot.app.screen is screen_of(pilot))


async def _stop(pilot: Pilot[Any], key: str) -> None:
    await pilot.press("f2")
    screen = screen_of(pilot)
    assert screen.side.has_focus_within
    await pilot.press(key)
    assert screen.prompt.has_focus_within


async def _next(pilot: Pilot[Any], key: str) -> None:
    was = pilot.app.focused
    await pilot.press(key)
    assert pilot.app.focused is not was
    screen_of(pilot).prompt.focus()


async def _copy(pilot: Pilot[Any], key: str) -> None:
    screen = screen_of(pilot)
    screen.transcript.focus()
    await pilot.pause()
    screen.text_select_all()
    await pilot.press(key)
    assert "hw.gpu_fell_off_bus" in pilot.app.clipboard
    screen.clear_selection()
    screen.prompt.focus()


async def _fold(pilot: Pilot[Any], key: str) -> None:
    checks = screen_of(pilot).transcript.checks
    assert checks
    for unfolded in (True, True, False):
        await pilot.press(key)
        assert checks.unfolded is unfolded


async def _aside(pilot: Pilot[Any], key: str) -> None:
    for display in (False, True):
        await pilot.press(key)
        assert screen_of(pilot).side.display is display


async def _theme(pilot: Pilot[Any], key: str) -> None:
    seen = {pilot.app.theme}
    for _ in range(3):
        await pilot.press(key)
        seen.add(pilot.app.theme)
    assert len(seen) == 3, "three looks, then the first again"


async def _quit(pilot: Pilot[Any], key: str) -> None:
    await pilot.press(key)
    await settled(pilot, lambda: pilot.app._exit)


async def _page(pilot: Pilot[Any], key: str) -> None:
    transcript, down = screen_of(pilot).transcript, key == "pagedown"
    await pilot.resize_terminal(WIDE[0], 20)
    await settled(pilot, lambda: transcript.max_scroll_y > 10)
    transcript.scroll_to(y=0 if down else transcript.max_scroll_y, animate=False)
    await settled(pilot, lambda: transcript.scroll_y == (0 if down else transcript.max_scroll_y))
    before = transcript.scroll_y
    await pilot.press(key)
    await settled(pilot, lambda: transcript.scroll_y > before if down else transcript.scroll_y < before)
    await pilot.resize_terminal(*WIDE)


def _panel(name: str) -> Callable[[Pilot[Any], str], Awaitable[None]]:
    async def look(pilot: Pilot[Any], key: str) -> None:
        screen = screen_of(pilot)
        await pilot.press(key)
        assert screen.side.shown == name and screen.side.has_focus_within
        await pilot.press(key)
        assert screen.prompt.has_focus_within

    return look


KEYS = {
    "app.help": _help, "app.command_palette": _palette, "stop": _stop, "app.focus_next": _next,
    "app.focus_previous": _next, "screen.copy_text": _copy, "fold": _fold, "aside": _aside, "app.next_theme": _theme,
    "app.quit": _quit, "page(-1)": _page, "page(1)": _page, **{f"panel('{name}')": _panel(name) for name in NAMES},
}  # fmt: skip


def test_every_key_of_everywhere_does_what_it_says() -> None:
    assert {g.action for g in GLOBAL_KEYS} == set(KEYS), "a new key needs a row here"

    async def story(pilot: Pilot[Any]) -> None:
        await answered(pilot, "why did it die?")
        last = [g for g in GLOBAL_KEYS if g.action == "app.quit"]
        for one in [*(g for g in GLOBAL_KEYS if g.action != "app.quit"), *last]:
            for key in one.keys:
                await KEYS[one.action](pilot, key)

    play(chat_app(), story, WIDE, hook=False)


# --- commands: what is typed after a diagnosis, and what then stands on the screen

TYPED: dict[str, tuple[str, str]] = {
    "run": ("/run again", "again: "),
    "good": ("/good good", "(with a good run)"),
    "watch": ("/watch off", "following no more"),
    "tool": ("/tool read-settings", "> /tool read-settings"),
    "allow": ("/allow probe", "checks up to probe run unasked"),
    "evidence": ("/evidence unused", "[evidence f2]"),
    "hypotheses": ("/hypotheses", "[hypotheses f3]"),
    "curves": ("/curves", "[curves f4]"),
    "ranks": ("/ranks", "[ranks f5]"),
    "repairs": ("/repairs", "[repairs f6]"),
    "apply": ("/apply P1", "Write this change to 1 file?"),
    "undo": ("/undo", "nothing"),
    "report": ("/report", "How it went"),
    "copy": ("/copy", "characters given to the terminal's clipboard"),
    "export": ("/export night.md", "wrote night.md"),
    "model": ("/model off", "asks no model from now on"),
    "session": ("/session", "doctor chat --session "),
    "sessions": ("/sessions", "go on with it"),
    "resume": ("/resume", "going on with session"),
    "theme": ("/theme light", ""),
    "stop": ("/stop", ""),
    "help": ("/help undo", "take an apply back"),
    "quit": ("/quit", ""),
}


def test_every_command_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(TYPED) == {c.name for c in COMMANDS}, "a new command needs a row here"
    for name in ("run", "again", "good"):
        shutil.copytree(PATCHED, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(change, "DEAF", 0.0)

    async def story(pilot: Pilot[Any]) -> None:
        await answered(pilot, "why does it hang?")
        for name, (line, told) in sorted(TYPED.items(), key=lambda row: _ORDER.get(row[0], 0)):
            await typed(pilot, line)
            try:
                await settled(pilot, lambda told=told: told in words(pilot), 8)
            except AssertionError:
                pytest.fail(f"{line}: {told!r} is not on the screen\n{words(pilot)}")
            if name == "theme":
                assert pilot.app.theme == "doctor-light"
            await settled(pilot, lambda: (s := screen_of(pilot)).talk and s.asking.now is None and not s.opening.busy)
            if pilot.app.screen is not screen_of(pilot):
                await pilot.press("escape")
                await settled(pilot, lambda: pilot.app.screen is screen_of(pilot))
            screen_of(pilot).action_leave_side()
        assert (tmp_path / "night.md").exists() and pilot.app._exit

    play(chat_app(Path("run")), story, WIDE, hook=False)


_ORDER = {"resume": 1, "good": 2, "run": 3, "quit": 4}


# --- bindings of the parts

TESTED = {
    "Card": "test_chat_screen", "Folded": "test_chat_screen", "ChatScreen": "test_every_key",
    "PromptText": "test_prompt", "Transcript": "test_every_key", "ApprovalDialog": "test_approval",
    "DoctorApp": "test_every_key", "ChangeDialog": "test_change_dialog", "HelpScreen": "test_help", "CurvesPanel": "test_curves_panel",
    "EvidencePanel": "test_evidence_panel", "EvidenceList": "test_evidence_panel",
    "HypothesesPanel": "test_hypotheses_panel", "RanksPanel": "test_ranks_panel", "RepairsPanel": "test_repairs_panel",
    "StartLine": "test_start", "PlaceList": "test_start", "Rows": "test_start", "StartScreen": "test_start",
    "SessionsScreen": "test_sessions", "FilePane": "test_viewer", "RankList": "test_viewer", "FileViewer": "test_viewer",
}  # fmt: skip


def _bound() -> dict[str, type[DOMNode]]:
    """Every class of the chat that binds keys of its own."""
    found: dict[str, type[DOMNode]] = {}
    for module in pkgutil.walk_packages(tui.__path__, f"{tui.__name__}."):
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, DOMNode) and kind.__module__ == module.name and kind.__dict__.get("BINDINGS"):
                found[name] = kind
    return found


def test_every_part_with_keys_has_its_tests_and_its_actions() -> None:
    bound = _bound()
    assert set(bound) == set(TESTED), "a part with keys needs a row here"
    for name, kind in bound.items():
        assert (Path(__file__).parent / f"{TESTED[name]}.py").exists()
        for binding in kind.BINDINGS:
            assert isinstance(binding, Binding) and binding.description, (name, binding)
            action = binding.action.partition("(")[0].rpartition(".")[2]
            holder = pilot_app() if binding.action.startswith("app.") else kind
            assert callable(getattr(holder, f"action_{action}", None)), (name, binding.key, action)


def pilot_app() -> type[DOMNode]:
    from traindoctor.tui.app import DoctorApp

    return DoctorApp


def test_keys_of_the_transcript_and_of_each_view_on_the_whole_program() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        await typed(pilot, "/report")
        screen.transcript.focus()
        await pilot.press("g")
        await settled(pilot, lambda: screen.transcript.scroll_y == 0)
        await pilot.press("j")
        await settled(pilot, lambda: screen.transcript.scroll_y == 1)
        await pilot.press("k", "G")
        await settled(pilot, lambda: screen.transcript.scroll_y == screen.transcript.max_scroll_y > 0)
        for opens, keys in (("f2", ("down", "end", "home")), ("f5", ("down", "t"))):
            await pilot.press(opens, *keys)
            await pilot.press("enter") if opens == "f2" else None
            await settled(pilot, lambda: pilot.app.screen is not screen)
            await pilot.press("q")
            await settled(pilot, lambda: pilot.app.screen is screen)
        await pilot.press("f3", "p")
        await answered(pilot, reports=2)
        assert screen.talk and screen.talk.reports[-1].status == "answer"

    play(chat_app(DEMO), story, WIDE, hook=False)


def test_nothing_is_bound_to_what_a_terminal_over_ssh_cannot_send() -> None:
    for kind in _bound().values():
        for binding in kind.BINDINGS:
            assert isinstance(binding, Binding)
            keys = binding.key.split(",")
            assert any(not k.startswith(("ctrl+shift", "super", "alt+up", "alt+down")) for k in keys), binding
