"""Train a small classifier on several processes; each rank reads its own shard."""

import argparse
import datetime
import json
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Net(nn.Module):
    def __init__(self, classes, aux):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.ReLU())
        self.head = nn.Linear(64, classes)
        self.aux_head = nn.Linear(64, classes) if aux else None

    def forward(self, x, with_aux=False):
        hidden = self.body(x)
        out = self.head(hidden)
        return out + self.aux_head(hidden) if with_aux else out


def batches(rows, size):
    for start in range(0, len(rows) - size + 1, size):
        part = rows[start : start + size]
        yield torch.tensor([r["x"] for r in part]), torch.tensor([r["label"] for r in part])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--aux-every", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=1800)
    args = parser.parse_args()

    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=args.timeout))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with open(os.path.join(args.data, f"shard_{rank}.jsonl"), encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    model = DistributedDataParallel(Net(10, args.aux_every > 0))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    print(f"rank {rank} of {world}: {len(rows)} records", flush=True)
    step = 0
    for epoch in range(args.epochs):
        for x, y in batches(rows, args.batch):
            step += 1
            with_aux = bool(args.aux_every) and step % args.aux_every == 0
            loss = nn.functional.cross_entropy(model(x, with_aux), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0 and step % 2 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), "model.pt")
        print(f"training finished after {step} steps", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
