"""Fixtures of the chat's tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual._compositor import Compositor
from textual.pilot import Pilot
from traindoctor.agent.chat.talk import Conversation

from tests.tui.stage import LOOK, Picture, drawn, heard, nothing_drawn, svg, talk_about


class _Svg(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    _file_extension = "svg"
    file_extension = "svg"


@pytest.fixture(autouse=True)
def _colours(monkeypatch: pytest.MonkeyPatch, _own_state: None) -> None:
    """Screens have colours, no animation, and the same clock zone, whatever the terminal of the tests is."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setattr("textual.app.wait_for_idle", drawn)
    monkeypatch.setattr("textual.pilot.wait_for_idle", drawn)
    monkeypatch.setattr(Pilot, "_wait_for_screen", heard)
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", LOOK / 2)  # so that no change waits between two looks
    monkeypatch.setattr(Compositor, "render_update", nothing_drawn)


@pytest.fixture
def picture(snapshot: Any) -> Picture:
    """Compare the screen with the picture of this name beside the test; `--snapshot-update` draws it anew.

    What a worker still has to bring is waited for; on a busy machine that can be seconds.
    """
    taken = snapshot.use_extension(_Svg)

    async def look(pilot: Pilot[Any], name: str) -> None:
        kept = taken._recall_data(index=name)[0]
        end = time.monotonic() + (0 if taken.update_snapshots or kept is None else 8)
        while svg(pilot.app) != kept and time.monotonic() < end:
            await pilot.pause(0.1)
        assert svg(pilot.app) == taken(name=name), f"the screen is not as in the picture {name!r}"

    return look


@pytest.fixture
def talk() -> Callable[..., Conversation]:
    """`talk(path)` begins a conversation about a run; about the demo where none is named."""

    def begin(*roots: Path, **more: Any) -> Conversation:
        return talk_about(*roots, **more)

    return begin
