"""Folders: the runs near here, or what a half typed path may go on with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from .rows import Draw, Rows, columns, shown

if TYPE_CHECKING:
    from ...agent.chat.recent_places import Place, RunFolder


class PlaceList(Rows):
    """Runs in and below the current folder; while a path is typed, the entries that fit it."""

    class Turned(Message):
        """It shows something else now, in words."""

        def __init__(self, heading: str) -> None:
            super().__init__()
            self.heading = heading

    class Into(Message):
        """Look into a folder: put its path on the line."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right", "into", "look into", show=True),
        Binding("left", "out", "folder above", show=False),
    ]

    def __init__(self, here: Path) -> None:
        super().__init__(id="places", nothing="looking ...")
        self._here = here
        self._runs: list[tuple[str, Draw]] = []
        self._paths: dict[str, tuple[str, Path, bool]] = {}  # as typed, where it is, whether a folder
        self._typed: str | None = None
        self._run_paths: dict[str, tuple[str, Path, bool]] = {}
        self._nothing_near = "looking ..."

    @property
    def path(self) -> Path | None:
        """What the cursor is on."""
        found = self._paths.get(self.key or "")
        return found[1] if found else None

    def show_runs(self, runs: list[RunFolder], now: float, nothing: str) -> None:
        """The runs that were found."""
        self._nothing_near = nothing
        self._runs = [(f"run:{r.path}", _run_row(r, self._here, now)) for r in runs]
        self._run_paths = {f"run:{r.path}": (f"{r.path}/", r.path, True) for r in runs}
        if self._typed is None:
            self.back_to_runs()

    def back_to_runs(self) -> None:
        """No path is typed any more."""
        self._typed = None
        self._paths = self._run_paths
        self.post_message(self.Turned(""))
        self.fill(self._runs, self._nothing_near)

    def show_entries(self, typed: str, entries: list[Place]) -> None:
        """What a typed path may go on with."""
        self._typed = typed
        lead = f"{typed.rpartition('/')[0]}/" if "/" in typed else str(self._here)
        self.post_message(self.Turned(f"In {lead} ({len(entries):,})"))
        self._paths = {f"at:{p.text}": (p.text, _path(self._here, p.text), p.folder) for p in entries}
        self.fill([(f"at:{p.text}", _entry_row(p)) for p in entries], "nothing here begins like this")

    def action_into(self) -> None:
        found = self._paths.get(self.key or "")
        if found and found[2]:
            self.post_message(self.Into(found[0]))

    def action_out(self) -> None:
        lead = (self._typed or "").rpartition("/")[0]
        shown = _path(self._here, f"{lead}/") if lead or self._typed else self._here
        above = os.path.normpath(shown / "..")
        self.post_message(self.Into(above if above == "/" else f"{above}/"))


def _path(here: Path, text: str) -> Path:
    try:
        return here / Path(text).expanduser()
    except RuntimeError:
        return here / text


def _entry_row(place: Place) -> Draw:
    name = place.text.rstrip("/").rpartition("/")[2]
    return lambda width: columns([(shown(f"{name}/" if place.folder else name), width - 2)])


def _run_row(run: RunFolder, here: Path, now: float) -> Draw:
    from ...agent.chat.recent import ago

    name = f"{run.path.relative_to(here)}" if run.path != here else ". (this folder)"

    def draw(width: int) -> Content:
        room = width - 2 - 10 - 2
        holds = min(34, room // 2)
        return columns([
            (shown(name), room - holds), (shown(run.holds, "$text-muted"), holds),
            (shown(ago(run.time, now) if run.time else "", "$text-muted"), 10),
        ])  # fmt: skip

    return draw
