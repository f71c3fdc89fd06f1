"""All-reduces of several sizes over the ranks of one launch: `torchrun all_reduce.py BYTES SECONDS PAIRS`, JSON lines.

Needs torch alone, so that another interpreter can run it by its path. Rank 0 prints one line a result: the ranks first,
then each size up to BYTES with its time, bandwidth and wrong elements, then with PAIRS = 1 every pair of ranks.
Ends itself after SECONDS, as a launcher that is killed leaves its workers behind.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from datetime import timedelta

sys.path[:1] = []  # this folder holds modules of common names

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

SMALLEST = 1 << 12
ENOUGH = 0.3  # seconds spent on one size
MOST_PAIRS = 66  # of up to twelve ranks


def say(**what: object) -> None:
    """One line of rank 0, at once."""
    if int(os.environ["RANK"]) == 0:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def device_of(backend: str) -> torch.device:
    """The rank's GPU with NCCL, else the processor."""
    if backend != "nccl":
        return torch.device("cpu")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    return torch.device("cuda", int(os.environ["LOCAL_RANK"]))


def waited(device: torch.device) -> float:
    """The clock once the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def measured(size: int, device: torch.device, group: dist.ProcessGroup | None, ranks: list[int]) -> tuple[float, int]:
    """(seconds of one all-reduce of `size` bytes, wrong elements), the slowest and the sum over the ranks."""
    values = torch.full((size // 4,), float(dist.get_rank() + 1), device=device)
    dist.all_reduce(values, group=group)
    wrong = int((values != float(sum(r + 1 for r in ranks))).sum())
    values.zero_()
    began = waited(device)
    dist.all_reduce(values, group=group)
    once = torch.tensor([waited(device) - began], device=device)
    dist.all_reduce(once, op=dist.ReduceOp.MAX, group=group)
    count = int(max(2, min(50, ENOUGH / max(float(once), 1e-6))))
    began = waited(device)
    for _ in range(count):
        dist.all_reduce(values, group=group)
    told = torch.tensor([(waited(device) - began) / count], device=device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX, group=group)
    faults = torch.tensor([float(wrong)], device=device)
    dist.all_reduce(faults, group=group)
    return float(told), int(faults)


def rates(size: int, seconds: float, ranks: int) -> dict[str, float]:
    """GB/s: bytes over time, and what every link carries (2 (n - 1) / n of it)."""
    algorithm = size / max(seconds, 1e-9) / 1e9
    return {"algbw": round(algorithm, 4), "busbw": round(algorithm * 2 * (ranks - 1) / ranks, 4)}


def sizes(largest: int, device: torch.device) -> None:
    """Every fourth power of two up to the largest."""
    world = dist.get_world_size()
    size = SMALLEST
    while size <= largest:
        seconds, wrong = measured(size, device, None, list(range(world)))
        say(kind="size", size=size, seconds=round(seconds, 9), wrong=wrong, **rates(size, seconds, world))
        size *= 4


def pairs(size: int, device: torch.device) -> None:
    """Two ranks at a time while the others wait."""
    world, rank = dist.get_world_size(), dist.get_rank()
    every = [(a, b) for a in range(world) for b in range(a + 1, world)]
    if len(every) > MOST_PAIRS:  # neighbours and opposites: each rank is in four
        near = {(min(a, b), max(a, b)) for a in range(world) for b in ((a + 1) % world, (a + world // 2) % world)}
        every = sorted(near)
    for a, b in every:
        group = dist.new_group([a, b])
        told = torch.zeros(2, dtype=torch.float64, device=device)
        if rank in (a, b):
            seconds, wrong = measured(size, device, group, [a, b])  # pyright: ignore[reportArgumentType]
            told += torch.tensor([seconds, float(wrong)], dtype=torch.float64, device=device) * (rank == a)
        dist.all_reduce(told)
        say(kind="pair", a=a, b=b, wrong=int(told[1]), **rates(size, float(told[0]), 2))
        if rank in (a, b):
            dist.destroy_process_group(group)  # pyright: ignore[reportArgumentType]


def main() -> None:
    """Measure, print, end in time."""
    largest, seconds, paired = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "1"
    ending = threading.Timer(seconds, lambda: os._exit(3))
    ending.daemon = True
    ending.start()
    world = int(os.environ["WORLD_SIZE"])
    here = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    backend = "nccl" if torch.cuda.is_available() and torch.cuda.device_count() >= here else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=max(seconds / 2, 5.0)))
    device = device_of(backend)
    version = ".".join(map(str, getattr(torch.cuda, "nccl").version())) if backend == "nccl" else ""  # noqa: B009
    say(kind="ranks", ranks=world, backend=backend, torch=torch.__version__, nccl=version, host=socket.gethostname())
    sizes(largest, device)
    if paired and world > 2:
        pairs(min(largest, 1 << 22), device)
    dist.barrier()
    say(kind="end")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
