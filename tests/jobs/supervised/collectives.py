"""A job of several small failures, one after the other, each with a flight-recorder dump of every rank.

Started by torchrun with four ranks: `torchrun --nproc-per-node 4 collectives.py OUT [NAME ...]`. Every rank forks one
child a scenario, which joins a Gloo group of its own, fails in its way, and writes OUT/NAME/nccl_trace_rank_R and rank_R.log. A rank
that cannot go on is dumped by a timer, as the watchdog of a real job would do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from forked import each, joined

PATIENCE = 4.0  # seconds until a rank that is stuck gets dumped
TOGETHER = 6  # scenarios at a time


said: list[str] = []  # what the rank's log will hold


def steps(count: int, size: int = 8) -> None:
    for _ in range(count):
        dist.all_reduce(torch.ones(size))
        number = 1 + sum(line.startswith("step") for line in said)
        said.append(f"step {number} loss {2.0 - number / 100:.4f}")


def healthy(rank: int) -> None:
    steps(4)
    dist.broadcast(torch.ones(3), 0)
    dist.barrier()


def skipped(rank: int) -> None:
    steps(3)
    if rank != 1:
        dist.all_reduce(torch.ones(2))
    dist.broadcast(torch.ones(64), 0)
    steps(2)


def other_op(rank: int) -> None:
    steps(3)
    save_checkpoint_on_first_rank(rank)


def save_checkpoint_on_first_rank(rank: int) -> None:
    if rank == 0:
        dist.broadcast(torch.ones(8), 0)
    else:
        dist.all_reduce(torch.ones(8))


def other_size(rank: int) -> None:
    steps(3)
    dist.all_reduce(torch.ones(8 if rank != 2 else 12))


def other_dtype(rank: int) -> None:
    steps(3)
    dist.all_reduce(torch.ones(8, dtype=torch.float64 if rank == 3 else torch.float32))


def stuck(rank: int) -> None:
    steps(5)
    if rank == 1:
        next_batch()
    steps(1)


def next_batch() -> None:
    time.sleep(3600)


def uneven(rank: int) -> None:
    batches = 4 if rank == 2 else 6
    said.append(f"{batches} batches in the loader")
    steps(batches)
    said.append("epoch done, all batches seen")


def uneven_exit(rank: int) -> None:
    uneven(rank)


def subgroup(rank: int) -> None:
    pairs = [dist.new_group([0, 1], group_desc="tensor"), dist.new_group([2, 3], group_desc="tensor_b")]
    mine = pairs[rank // 2]
    steps(2)
    for _ in range(2):
        dist.all_reduce(torch.ones(4), group=mine)
    if rank == 3:
        dist.all_gather([torch.ones(4), torch.ones(4)], torch.ones(4), group=mine)
    else:
        dist.all_reduce(torch.ones(4), group=mine)
    steps(1)


def unsent(rank: int) -> None:
    steps(2)
    if rank == 0:
        dist.send(torch.ones(4), 1)
    elif rank == 1:
        dist.recv(torch.ones(4), 0)
        dist.recv(torch.ones(4), 0)
    steps(1)


def unrecorded(rank: int) -> None:
    steps(3)
    if rank == 3:
        os._exit(1)  # killed: it leaves no dump
    steps(1)


EVERY = (
    healthy, skipped, other_op, other_size, other_dtype, stuck, uneven, uneven_exit, subgroup, unsent, unrecorded,
)  # fmt: skip
SCENARIOS: dict[str, Callable[[int], None]] = {f.__name__: f for f in EVERY}


def play(name: str, out: Path, rank: int, world: int) -> None:
    """One scenario in this process, which ends with it."""

    leaving = threading.Lock()

    def leave() -> None:
        leaving.acquire()  # for good: the timer and the end of the job may come together
        (out / f"rank_{rank}.log").write_text(
            "".join(f"{line}\n" for line in [f"rank {rank} of world size {world}", *said])
        )
        path = out / f"nccl_trace_rank_{rank}"
        path.with_suffix(".part").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
        path.with_suffix(".part").rename(path)
        os._exit(0)

    joined(out, rank, world)
    threading.Timer(PATIENCE, leave).start()
    try:
        SCENARIOS[name](rank)
    except RuntimeError as error:  # a peer left, or Gloo saw the difference itself
        said.append(f"[rank{rank}]: RuntimeError: {error}")
    if name not in ("healthy", "uneven_exit"):
        time.sleep(2 * PATIENCE)  # a rank that leaves at once would take its peers along
    leave()


if __name__ == "__main__":
    each(list(SCENARIOS), TOGETHER, play)
