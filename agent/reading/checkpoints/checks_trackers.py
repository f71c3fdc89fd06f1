"""Whether the small file that names the newest save names one that is there, and the newest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .checks import Flaw
from .layouts import Checkpoint, Tracker, trackers
from .layouts_names import step_of_folder

if TYPE_CHECKING:
    from ...workspace import Workspace


def tracker_flaws(ws: Workspace, held: list[Checkpoint]) -> Iterator[tuple[Checkpoint, Flaw]]:
    """`(save nearest to it, flaw)` for each tracker that names nothing, or a save older than the newest."""
    for tracker in trackers(ws):
        beside = [c for c in held if c.run == tracker.file.run and _beside(c, tracker)]
        if not beside or tracker.target == "release":
            continue
        line = next(iter(ws.lines(tracker.file)), None)
        target = _target(tracker)
        names = {f.name for f in ws.files if f.run == tracker.file.run}
        prefix = f"{tracker.folder}/{target}/" if tracker.folder not in (".", "") else f"{target}/"
        there = bool(target) and any(n.startswith(prefix) for n in names)
        newest = max(beside, key=lambda c: (c.step if c.step is not None else -1, c.written))
        if not tracker.target:
            text = f"{tracker.file.path.name} is empty"
            yield newest, Flaw("checkpoint.tracker_mismatch", text, "empty", tracker.file, weight="note")
        elif not there:
            text = f"{tracker.file.path.name} names {tracker.target[:80]!r}, which is not there"
            value = tracker.target[:80]
            yield newest, Flaw("checkpoint.tracker_mismatch", text, value, tracker.file, weight="note", line=line)
        elif (found := step_of_folder(target)) and newest.step is not None and found[1] < newest.step:
            text = f"{tracker.file.path.name} names {target}, but {newest.name} is newer"
            yield newest, Flaw("checkpoint.tracker_stale", text, target, tracker.file, weight="note", line=line)


def _beside(checkpoint: Checkpoint, tracker: Tracker) -> bool:
    folder = "" if tracker.folder == "." else tracker.folder
    return checkpoint.folder in (tracker.folder, folder) or checkpoint.name == folder


def _target(tracker: Tracker) -> str:
    """The folder that is meant: Megatron writes a bare number, verl too."""
    text = tracker.target.splitlines()[0].strip() if tracker.target else ""
    if text.isdigit() and tracker.file.path.name.startswith("latest_checkpointed"):
        names = (f"iter_{int(text):07d}", f"global_step_{int(text)}", f"step_{int(text)}")
        here = tracker.file.path.parent
        return next((n for n in names if (here / n).is_dir()), names[0])
    return text.rstrip("/").rsplit("/", 1)[-1]
