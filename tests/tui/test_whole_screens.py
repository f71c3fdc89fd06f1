"""Pictures of the whole program: every view beside a real diagnosis, wide and narrow, in each look; and of the documents."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.tui.house import answered, chat_app, opened, shows, typed, words
from tests.tui.stage import DEMO, NARROW, ROOT, WIDE, Picture, play, settled

READY = {
    "evidence": "pieces of evidence", "hypotheses": "hw.gpu_fell_off_bus", "curves": "curves f4]",
    "ranks": "failed first", "repairs": "3 repairs",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is `runs/exp42` of the current folder, the session has a name of its own."""
    shutil.copytree(DEMO, tmp_path / "runs" / "exp42")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("traindoctor.agent.session.session.new_session", lambda: "20260304-041500-a1b2c3")


async def each_view(pilot: Pilot[Any], picture: Picture, look: str) -> None:
    """A picture of each view."""
    screen = await answered(pilot, "why did it die?")
    told = lambda: f"{screen.transcript.below} more lines below"  # noqa: E731
    await settled(pilot, lambda: screen.transcript.scroll_y > 0 and told() in words(pilot))
    if look == "wide":  # that of 80x24 stands in docs/
        await picture(pilot, f"{look}-answered")
    for number, (name, told) in enumerate(READY.items(), 2):
        await pilot.press(f"f{number}")
        await shows(pilot, told)
        await settled(pilot, lambda name=name: screen.side.shown == name)
        if look == "narrow" or name == "hypotheses":  # each is some 80 kB
            await picture(pilot, f"{look}-{name}")
        await pilot.press("escape")


def test_each_view_in_a_wide_terminal(picture: Picture) -> None:
    async def story(pilot: Pilot[Any]) -> None:
        await each_view(pilot, picture, "wide")
        await typed(pilot, "/theme light")
        await settled(pilot, lambda: "light" in pilot.app.theme)
        await picture(pilot, "light")

    play(chat_app(Path("runs/exp42")), story, (120, 36), hook=False)


def test_each_view_at_80x24(picture: Picture) -> None:
    async def story(pilot: Pilot[Any]) -> None:
        await each_view(pilot, picture, "narrow")
        await pilot.press("ctrl+p")
        await shows(pilot, "/run PATH")
        await picture(pilot, "narrow-palette")

    play(chat_app(Path("runs/exp42")), story, NARROW, hook=False)


def test_without_colours_and_with_errors(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def story(pilot: Pilot[Any]) -> None:
        await opened(pilot)
        for line, told in (
            ("/apply P1", "no diagnosis yet"),
            ("/nonsense", "no command"),
            ("/run gone", "no such path"),
        ):
            await typed(pilot, line)
            await shows(pilot, told)
        await picture(pilot, "no-colour-errors")
        await answered(pilot, "why did it die?")
        await pilot.press("f2", "enter")
        await shows(pilot, "cited here")
        await picture(pilot, "no-colour-file")
        assert "dmesg" in words(pilot)

    play(chat_app(Path("runs/exp42")), story, WIDE, hook=False)


# --- pictures of the documents


def _pictures() -> Any:
    spec = importlib.util.spec_from_file_location("draw_pictures", ROOT / "docs" / "pictures.py")
    assert spec and spec.loader
    module: Any = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    return module


def test_pictures_of_the_documents_are_there_small_and_neutral() -> None:
    folder = ROOT / "docs" / "pictures"
    named = set()
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        named |= set(re.findall(r"pictures/([\w-]+)\.svg", page.read_text(encoding="utf-8")))
    assert named == {p.stem for p in folder.iterdir()} == set(_pictures().NAMES)
    for path in folder.iterdir():
        text = path.read_text(encoding="utf-8")
        assert len(text) < 120_000 and "@font-face" not in text and "/tmp" not in text, path.name


def test_a_picture_of_the_documents_is_what_the_program_draws() -> None:
    kept = (ROOT / "docs" / "pictures" / "narrow.svg").read_text(encoding="utf-8")
    assert _pictures().draw("narrow") == kept, "look at it, then `make pictures`"
