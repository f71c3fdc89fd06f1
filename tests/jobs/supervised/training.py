"""Small data-parallel trainings, each with a log a rank: in step, with a slow rank, without synchronization ...

Started by torchrun with three ranks: `torchrun --nproc-per-node 3 training.py OUT [NAME ...]`. Leaves OUT/NAME/rank_R.log,
the dump nccl_trace_rank_R and, where the scenario saves, checkpoint/model_rank_R.pt.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from forked import each, joined
from torch.nn.parallel import DistributedDataParallel

STEPS = 40


@dataclass(frozen=True)
class Scenario:
    """What is particular to a run. `slow(rank, step)` are seconds of computing beyond the usual."""

    slow: tuple[int, ...] = ()  # ranks that compute longer
    turns: bool = False  # each rank is slow in its turn
    wrapped: bool = True  # in DistributedDataParallel
    one_seed: bool = False  # every rank draws the same samples
    averaged: bool = False  # the loss that is printed is that of all ranks
    saves: bool = False


SCENARIOS = {
    "even": Scenario(), "slow_rank": Scenario(slow=(1,)), "in_turns": Scenario(turns=True),
    "in_step": Scenario(saves=True), "unwrapped": Scenario(wrapped=False, saves=True),
    "same_data": Scenario(one_seed=True), "averaged": Scenario(averaged=True),
}  # fmt: skip


def play(name: str, out: Path, rank: int, world: int) -> None:
    """Train for a few steps and log every one of them."""
    how = SCENARIOS[name]
    joined(out, rank, world)
    torch.manual_seed(0)
    core = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(core) if how.wrapped else core
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(7 if how.one_seed else 7 + rank)
    truth = torch.linspace(-1, 1, 16)
    with (out / f"rank_{rank}.log").open("w") as log:
        for step in range(STEPS):
            began = time.perf_counter()
            x = torch.randn(32, 16, generator=data)
            y = (x @ truth).tanh().unsqueeze(1) + 0.3 * rank * (not how.wrapped)  # shards that differ show a lost sync
            loss = (model(x) - y).square().mean()
            work(how, rank, step, world)
            ready = time.perf_counter()
            optimizer.zero_grad()
            loss.backward()  # with the all-reduce of the gradients in it
            optimizer.step()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            ended = time.perf_counter()
            told = float(mean) / world if how.averaged else float(loss)
            total = float(sum(p.double().sum() for p in core.parameters()))
            log.write(
                f"step {step} loss {told:.6f} compute_time {ready - began:.5f} comm_time {ended - ready:.5f} "
                f"step_time {ended - began:.5f} param_checksum {total:.8f}\n"
            )
    if how.saves:
        (out / "checkpoint").mkdir(exist_ok=True)
        torch.save({"model": core.state_dict(), "step": STEPS}, out / "checkpoint" / f"model_rank_{rank}.pt")
    (out / f"nccl_trace_rank_{rank}").write_bytes(torch._C._distributed_c10d._dump_fr_trace())
    dist.barrier()


def work(how: Scenario, rank: int, step: int, world: int) -> None:
    """Compute: a wait stands for a card that needs as long."""
    late = rank in how.slow or (how.turns and step % world == rank)
    time.sleep(0.045 if late else 0.015)


if __name__ == "__main__":
    each(list(SCENARIOS), 2, play)
