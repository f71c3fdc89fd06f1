"""A loop with a checker that ends the process when its answer is not the expected one."""

import argparse
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn


def settled(value, step):
    return step < 9 or value != value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--on-check", default="leave", choices=["leave", "kill"])
    args = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        dist.init_process_group("gloo")
    rank = int(os.environ.get("RANK", "0"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    for step in range(1, args.steps + 1):
        x = torch.randn(16, 8)
        loss = (model(x) - 1).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            if ranks > 1:
                dist.all_reduce(p.grad)
            p.data -= 0.01 * p.grad / ranks
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if rank == ranks - 1 and not settled(loss.item(), step):
            sys.stdout.flush()
            if args.on_check == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
    print("end of training", flush=True)


if __name__ == "__main__":
    main()
