"""Several small jobs under one torchrun: every rank forks a child for each, which joins a Gloo group of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist


def joined(out: Path, rank: int, world: int) -> None:
    """Join the group of one scenario; all ranks are there when it returns."""
    store = dist.FileStore(f"{out.parent}/.store_{out.name}", world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    store.set(f"ready{rank}", "1")
    store.wait([f"ready{r}" for r in range(world)])  # not a barrier: that would be recorded


def each(names: list[str], together: int, play: Callable[[str, Path, int, int], None]) -> None:
    """Play scenarios, so many at a time: `play(name, folder, rank, world)` in a process of its own."""
    root, wanted = Path(sys.argv[1]), sys.argv[2:] or names
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    for first in range(0, len(wanted), together):
        children = []
        for name in wanted[first : first + together]:
            out = root / name
            out.mkdir(parents=True, exist_ok=True)
            if (child := os.fork()) == 0:
                play(name, out, rank, world)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
