"""The chat in bad hours: a job's report full of escapes, keys at random, tiny windows, a bug of ours, a signal."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from traindoctor.agent.safety.fences import inert
from traindoctor.tui import crash
from traindoctor.tui.app import DoctorApp
from traindoctor.tui.chat.transcript import Transcript
from traindoctor.tui.messages import Told

from tests.sample import sample
from tests.tui import house
from tests.tui.house import answered, chat_app, opened, screen_of, typed, words
from tests.tui.stage import DEMO, NARROW, ROOT, play, settled
from tests.tui.terminal import Terminal, foreign

BAD = (
    "\x1b]52;c;UFdORUQ=\x07\x1b[2J\x9b31m\u202eabc\u200b\x00[bold]x[/bold][@click=app.quit]q[/][link=http://x]l[/link]"
    " ![i](http://x/i.png) <img src=x> [l](javascript:1) [/] [unclosed $accent `"
)
SMALL = ROOT / "evals" / "incidents" / "dist-vlm-bucket-sizes-differ" / "files"
CLOSED = ("schema", "status", "state", "kind", "outcome", "role", "advice", "level", "planner", "by", "same")
KEYS = [
    *"abcdefghijknpqrsuvwxyz0123456789/@?[]'\"\\ .", *["enter", "escape"] * 3, "tab", "shift+tab", "up", "down", "left",
    "right", "home", "end", "pageup", "pagedown", "backspace", "f1", "f2", "f3", "f4", "f5", "f6", "ctrl+j", "ctrl+p",
    "ctrl+o", "ctrl+b", "ctrl+t", "ctrl+u", "ctrl+w", "N", "G", "ctrl+z",
]  # fmt: skip
# What is started in a terminal: the chat with a check of the screen that fails, quoting a secret of the run.
BROKEN = """
from traindoctor.agent.doors.cli import main
from traindoctor.tui import app, crash
from traindoctor.tui.chat.screen import ChatScreen
class Program(app.DoctorApp if issubclass(app.DoctorApp, crash.Sturdy) else type("P", (crash.Sturdy, app.DoctorApp), {})):
    CSS_PATH = %r
app.DoctorApp = Program
def fails(self):
    raise KeyError("\\x1b[31m[bold]no such\\n key\\x1b]0;x\\x07 AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY")
ChatScreen.action_fold = fails
raise SystemExit(main())
"""


@pytest.fixture(autouse=True)
def _sturdy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as it is, with what makes it outlive bad terminals."""
    if not issubclass(DoctorApp, crash.Sturdy):
        css = {"CSS_PATH": ROOT / "tui" / "doctor.tcss"}
        monkeypatch.setattr(house, "DoctorApp", type("Program", (crash.Sturdy, DoctorApp), css))


def test_a_report_of_a_hostile_job_steers_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run\x1b]0;x\x07[bold]"
    shutil.copytree(SMALL, run)
    report = run / "doctor-report.json"
    report.write_text(json.dumps(_spoilt(json.loads(sample().to_json()))))

    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        assert screen.talk and screen.talk.reports
        _steers_nothing(pilot)
        await typed(pilot, "/report")
        for view in ("f2", "f3", "f4", "f5", "f6"):
            await pilot.press(view)
            await pilot.press("down", "enter")
            await pilot.pause(0.05)
            _steers_nothing(pilot)
            await pilot.press("escape", "escape", "escape", "escape")
        for line in (
            "/evidence E1",
            "/apply P1",
            f"/run {BAD}",
            f"/tool grep-logs pattern={BAD}",
            f"/{BAD}",
            f"show {BAD}",
        ):
            await typed(pilot, line)
            await pilot.pause(0.05)
            await settled(pilot, lambda: screen_of(pilot).asking.now is None)
            _steers_nothing(pilot)
            await pilot.press("escape", "escape")

    play(chat_app(report=str(report)), story, (110, 30), hook=False)


def test_keys_at_random_end_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    run = tmp_path / "run"
    shutil.copytree(SMALL, run)
    lines = [
        f"/run {run}",
        "/tool read-settings",
        "/evidence",
        "/apply",
        "/undo",
        "/sessions",
        "/watch",
        "why?",
        "/theme",
    ]

    async def story(pilot: Pilot[Any]) -> None:
        screen = await answered(pilot, "why did it die?")
        for number in range(24):
            if number % 6 == 5 and pilot.app.screen is screen:
                await typed(pilot, chance.choice(lines))
            if number % 15 == 14:
                await pilot.resize_terminal(chance.randint(1, 200), chance.randint(1, 60))
            await pilot.press(*chance.choices(KEYS, k=2))
            assert pilot.app._exception is None
            if not pilot.app.is_running:  # /quit is among what can be typed by chance
                assert not pilot.app.return_code
                return

    play(chat_app(run), story, NARROW, hook=False)


def test_a_window_of_a_few_columns_ends_nothing() -> None:
    async def story(pilot: Pilot[Any]) -> None:
        await opened(pilot)
        before = words(pilot)
        for width, height in ((2, 10), (6, 1)):
            await pilot.resize_terminal(width, height)
            await pilot.press("ctrl+p", "escape", "f1", "escape", "f2", "escape")
            assert pilot.app._exception is None
        await pilot.resize_terminal(*NARROW)
        await settled(pilot, lambda: words(pilot) == before)

    play(chat_app(), story, NARROW, hook=False)


def test_a_bug_is_one_line_and_a_file_and_a_signal_gives_the_terminal_back(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", BROKEN % str(ROOT / "tui" / "doctor.tcss"), "chat", "--offline", str(DEMO)]
    state = {"DOCTOR_STATE": str(tmp_path / "state")}
    with Terminal(argv, env=state) as t:
        t.until("ask: why")
        t.press("ctrl+o")
        t.ends(1)
        raw, _, after = t.raw.partition(b"\x1b[?1049l")
        assert raw and after, "the terminal is given back"
        line = after.decode().split("\x1b[?1006l")[-1].strip()
        assert line.startswith("bug in doctor: KeyError: ") and "\n" not in line and foreign(t.raw) == []
    (kept,) = (tmp_path / "state" / crash.FOLDER).iterdir()
    text = kept.read_text()
    assert "in fails" in text and kept.stat().st_mode & 0o077 == 0
    assert "EXAMPLEKEY" not in text + line and "\x1b" not in text
    with Terminal(argv, env=state) as t:
        t.until("ask: why")
        os.kill(t.child.pid, signal.SIGTERM)
        t.ends(128 + signal.SIGTERM, seconds=30)
        assert b"\x1b[?1049l" in t.raw and b"told to end" in t.raw and b"Traceback" not in t.raw


def test_what_comes_late_for_a_part_that_is_gone_is_no_bug_once_it_ends() -> None:
    app = chat_app()

    async def story(pilot: Pilot[Any]) -> None:
        screen = await opened(pilot)
        screen.transcript = Transcript()  # on no screen: what Textual leaves of one for a moment
        pilot.app.exit()
        screen.post_message(Told("a check that ends now"))

    play(app, story, NARROW, hook=False)
    assert app.return_code == 0 and not app.last_words


def test_an_account_of_a_bug_is_kept_whatever_it_is(tmp_path: Path) -> None:
    def deep(n: int) -> None:
        deep(n + 1)

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    try:
        deep(0)
    except RecursionError as e:
        assert "RecursionError" in crash.kept(tmp_path, e)
    assert "Odd: (its message cannot be shown)" in crash.kept(tmp_path, Odd())
    assert len(crash.kept(tmp_path, ValueError("x" * 10_000_000 + "\udcff\n"))) < 1_000
    assert max(p.stat().st_size for p in (tmp_path / crash.FOLDER).iterdir()) < 50_000
    (tmp_path / "file").write_text("")
    assert "could be kept" in crash.kept(tmp_path / "file", ValueError("x"))


def _spoilt(value: Any, name: str = "") -> Any:
    """The same with hostile words in every string that is free."""
    if isinstance(value, dict):
        return {key: _spoilt(x, key) for key, x in value.items()}
    if isinstance(value, list):
        return [_spoilt(x, name) for x in value]
    return value + BAD if isinstance(value, str) and name not in CLOSED else value


def _steers_nothing(pilot: Pilot[Any]) -> None:
    """No cell of any screen holds a character that steers, a link, or an action that a text brought along."""
    for screen in pilot.app.screen_stack:
        for row in screen._compositor.render_strips(screen.size):
            for segment in row:
                assert inert(segment.text) == segment.text
                style = segment.style
                assert not (style and style.link)
                assert not (style and style.meta and "@click" in style.meta and "quit" in str(style.meta)), segment
