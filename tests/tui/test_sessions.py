"""`/resume`: one of the earlier sessions, found by typing."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Static
from traindoctor.tui.start.recent_list import RecentList
from traindoctor.tui.start.sessions import SessionsScreen

from tests.sample import sample
from tests.tui.kept_sessions import NOW, every_kind
from tests.tui.stage import NARROW, Stage, play, settled


def text_of(pilot: Any) -> str:
    return "\n".join(strip.text for strip in pilot.app.screen._compositor.render_strips())


def test_a_session_is_found_by_typing(tmp_path: Path, picture: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state, _ = every_kind(Path())
    app, chosen = Stage(), []

    async def story(pilot: Any) -> None:
        def again() -> None:
            app.push_screen(SessionsScreen(state, lambda: NOW), chosen.append)

        again()
        await pilot.pause()
        await settled(pilot, lambda: app.screen.query_one(RecentList).option_count == 8)
        await settled(pilot, lambda: "! gone" in text_of(pilot))
        assert "Earlier sessions (8)" in text_of(pilot) and "in exp42" not in text_of(pilot), "sessions alone"
        await pilot.press("down")
        await picture(pilot, "narrow")
        await pilot.press(*"hang A.M")
        await settled(pilot, lambda: "(1 of 8)" in text_of(pilot))
        assert "> likely" in text_of(pilot)
        await pilot.press("enter")
        assert chosen == ["20260304-011500-b2c3d4"]
        again()
        await pilot.pause()
        await settled(pilot, lambda: app.screen.query_one(RecentList).option_count == 8)
        await pilot.press(*"damaged", "enter")
        assert len(chosen) == 1 and "is damaged and cannot be gone on with" in str(
            app.screen.query_one("#heading", Static).visual)  # fmt: skip
        await pilot.press(*"zzz", "enter")
        assert "nothing has all of these words" in text_of(pilot)
        await pilot.press("escape")
        assert chosen[1:] == [None]

    play(app, story, size=NARROW)


def test_many_sessions_and_a_storm_of_sizes_stay_quick(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    for n in range(520):
        file = tmp_path / "reports" / f"s{n:04}.json"
        file.write_text(sample(session=f"s{n:04}", question="x" * 5_000).to_json() if n % 10 == 0 else "{}")
        os.utime(file, (NOW - n, NOW - n))
    app = Stage()

    async def story(pilot: Any) -> None:
        app.push_screen(SessionsScreen(tmp_path, lambda: NOW))
        await pilot.pause()
        await settled(pilot, lambda: app.screen.query_one(RecentList).option_count == 500)
        await settled(pilot, lambda: "20 older: doctor sessions" in text_of(pilot))
        began = time.thread_time()
        for width in range(80, 120, 4):
            await pilot.resize_terminal(width, 30)
        await pilot.press("pagedown", *"s04")
        assert time.thread_time() - began < 5
        assert "..." not in text_of(pilot).splitlines()[0]

    play(app, story)
