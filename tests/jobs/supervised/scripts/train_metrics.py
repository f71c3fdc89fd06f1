"""Data-parallel steps by hand, with an all-reduce of gradients and now and then one of a metric."""

import argparse
import datetime
import os

import torch
import torch.distributed as dist
from torch import nn


def accuracy(model, x, y, keep):
    right = (model(x).argmax(-1) == y).float()
    return right[right >= 0] if keep is None else right[:keep]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--log-rank-metrics", default="all", choices=["all", "even", "sizes", "first"])
    parser.add_argument("--timeout", type=float, default=1800)
    args = parser.parse_args()

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    model = nn.Linear(8, 4)
    for step in range(1, args.steps + 1):
        x = torch.randn(32, 8)
        y = torch.randint(0, 4, (32,))
        loss = nn.functional.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.1 * p.grad / world
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % args.eval_every == 0:
            if args.log_rank_metrics == "even" and rank % 2:
                continue
            if args.log_rank_metrics == "first":
                if rank == 0:
                    dist.barrier()
                    print(f"step {step} accuracy {accuracy(model, x, y, None).mean().item():.3f}", flush=True)
                continue
            size = 16 + 4 * rank if args.log_rank_metrics == "sizes" else None
            right = accuracy(model, x, y, size)
            dist.all_reduce(right)
            if rank == 0:
                print(f"step {step} accuracy {right.mean().item() / world:.3f}", flush=True)
    if rank == 0:
        print(f"done: {args.steps} steps on {os.environ['WORLD_SIZE']} ranks", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
