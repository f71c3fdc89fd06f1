"""The checkpoints of one folder that training could go on from, and the small files that point at one of them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from ..errors import UsageError
from ..reading.checkpoints.layouts import Checkpoint, checkpoints, trackers
from ..workspace import Workspace

_LINKED_OUT = "link"


def saves(ws: Workspace, folder: Path) -> list[Checkpoint]:
    """The numbered saves of the one series that lies in a folder, oldest first.

    Raises:
        UsageError: there is none, or there are several series.
    """
    held = [c for c in checkpoints(ws) if c.step is not None and c.folder]
    if not held:
        away = [name for name, why in ws.skipped if _LINKED_OUT in why]
        hint = f"{away[0]} is a link out of it: name the folder that it leads to" if away else ""
        unnumbered = [c.name for c in checkpoints(ws)]
        if unnumbered and not hint:
            hint = f"{unnumbered[0]} bears no step; name the folder that holds several saves"
        raise UsageError(f"no numbered checkpoints in {folder}", hint)
    series = sorted({c.folder for c in held})
    if len(series) > 1:
        named = ", ".join(str(folder / s) for s in series[:6])
        raise UsageError(f"{len(series)} series of checkpoints in {folder}", f"name one of {named}")
    return held


def parts_of(ws: Workspace, checkpoint: Checkpoint, folder: Path) -> dict[str, dict[str, Path]]:
    """What a save is made of: names in the new folder, with the files below each (an empty name: the file itself).

    Files of a save that are not read by any check (code, logs beside the weights) belong to it too.
    """
    own = folder / checkpoint.name
    if own.is_dir():
        below = [f for f in sorted(own.rglob("*")) if f.is_file()]
        found = {own.name: {f.relative_to(own).as_posix(): f for f in below}}
    else:
        found = {f.path.name: {"": f.path} for f in checkpoint.all}
    return {**found, **_beside(ws, checkpoint)}


def _beside(ws: Workspace, checkpoint: Checkpoint) -> dict[str, dict[str, Path]]:
    """slime keeps the position in the prompts beside the saves, as rollout/global_dataset_state_dict_<step>.pt."""
    base = PurePosixPath(checkpoint.folder)
    wanted = str(base / "rollout" / f"global_dataset_state_dict_{checkpoint.step}.pt")
    file = next((f for f in ws.files if f.name == wanted), None)
    return {"rollout": {file.path.name: file.path}} if file else {}


def tracked(ws: Workspace, checkpoint: Checkpoint) -> dict[str, str]:
    """The tracker files of a framework, as they name this save: by their names, with what stands in them."""
    own = PurePosixPath(checkpoint.name).name
    here = {t.file.path.name for t in trackers(ws) if t.folder == checkpoint.folder}
    if checkpoint.framework == "deepspeed" and own.startswith("global_step"):
        here.add("latest")
    elif own.startswith("iter_" if checkpoint.framework.startswith("megatron") else "global_step_"):  # verl's
        here.add("latest_checkpointed_iteration.txt")
    told = {"latest_checkpointed_iteration.txt": str(checkpoint.step)}
    return {name: told.get(name, own) for name in sorted(here - {"latest_universal"})}
