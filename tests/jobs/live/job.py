"""A small Gloo job whose last rank gets stuck in one of several ways; started by torchrun in the tests.

Usage: torchrun --nproc-per-node N job.py MODE
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

LOCK = threading.Lock()


class Samples(Dataset):
    """Endless samples; `mode` says how a worker gets stuck."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.mode == "worker_sleeps" and index >= 8:
            read_record(index)
        if self.mode == "forked_lock":
            stuck()
            with LOCK:
                return torch.ones(2)
        if self.mode == "worker_stops" and index == 8:
            stuck()
            os.kill(os.getpid(), signal.SIGSTOP)
        return torch.ones(2)


def stuck() -> None:
    """Say that the next line is the last."""
    sys.stdout.write("stuck\n")
    sys.stdout.flush()


def read_record(index: int) -> None:
    """Stands for a read that never ends."""
    stuck()
    time.sleep(600 + index)


def prepare_answer() -> None:
    """User code that one rank alone runs into."""
    stuck()
    time.sleep(600)


def hold() -> None:
    """Keeps the lock for good, so that a fork copies it locked."""
    with LOCK:
        time.sleep(600)


def main() -> None:
    """Step with an all-reduce each; the last rank gets stuck."""
    mode = sys.argv[1]
    dist.init_process_group("gloo")
    last = dist.get_rank() == dist.get_world_size() - 1
    if mode == "forked_lock" and last:
        threading.Thread(target=hold, daemon=True).start()
        time.sleep(0.2)
    loader = DataLoader(Samples(mode if last else "well"), batch_size=2, num_workers=2 if last else 0)
    for step, batch in enumerate(loader):
        if mode == "user_code" and last and step == 2:
            prepare_answer()
        if mode == "lock" and last and step == 2:
            LOCK.acquire()
            stuck()
            LOCK.acquire()
        total = batch.sum()
        dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
