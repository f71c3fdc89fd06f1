"""Whether a save comes from the parallel layout that the run has now, where a save cannot be read under another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..settings import read_settings
from .checks import Flaw
from .checks_ranks import megatron_sizes, verl_world, zero_world
from .layouts import Checkpoint

if TYPE_CHECKING:
    from ...workspace import Workspace


def saved_layout(ws: Workspace, checkpoint: Checkpoint) -> dict[str, int]:
    """Sizes by canonical setting (world_size, tensor_parallel, pipeline_parallel) that the saved state tells."""
    if checkpoint.framework == "deepspeed":
        world = zero_world(ws, checkpoint)
        return {"world_size": world[0] * world[1]} if world else {}
    if checkpoint.framework == "verl":
        size = verl_world(checkpoint)
        return {"world_size": size} if size else {}
    if checkpoint.framework == "megatron":
        for file in checkpoint.files.get("model", []):
            if sizes := megatron_sizes(ws, file):
                return {"tensor_parallel": sizes[0], "pipeline_parallel": sizes[1]}
    return {}


def layout_flaws(ws: Workspace, checkpoint: Checkpoint) -> Iterator[Flaw]:
    """Sizes in which the run's settings differ from those of the save; a universal or DCP save is not bound to any."""
    if "universal" in checkpoint.name:
        return
    settings = read_settings(ws)
    for name, saved in saved_layout(ws, checkpoint).items():
        now = settings.value(name)
        if isinstance(now, int) and not isinstance(now, bool) and now > 0 and now != saved:
            text = f"saved with {name} {saved}, the run's settings say {now}"
            yield Flaw("checkpoint.layout_differs", text, name, checkpoint.tensor_files[0], name, "note")
