"""Two-tower retriever under DDP, gradient accumulation, profile of the last steps."""

import os
import sys
import time

import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile


class Towers(nn.Module):
    def __init__(self, items, dim, hidden):
        super().__init__()
        self.items = nn.Embedding(items, dim)
        self.query, self.doc = (nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 64)) for _ in range(2))

    def forward(self, q, d):
        return self.query(self.items(q).mean(1)) @ self.doc(self.items(d).mean(1)).T


def main():
    cfg = yaml.safe_load(open(sys.argv[1]))
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(cfg["seed"])
    model = DistributedDataParallel(Towers(cfg["items"], cfg["dim"], cfg["hidden"]))
    opt = torch.optim.SGD(model.parameters(), lr=cfg["lr"])
    rng = torch.Generator().manual_seed(rank)
    say = lambda text: print(f"[{rank}] {text}", flush=True)
    say(f"{dist.get_world_size()} ranks, {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, "
        f"micro batch {cfg['micro_batch']} x {cfg['accumulation']}")

    def step():
        total = 0.0
        for _ in range(cfg["accumulation"]):
            topic = torch.randint(0, cfg["items"] - 50, (cfg["micro_batch"], 1), generator=rng)
            q = topic + torch.randint(0, 50, (cfg["micro_batch"], 6), generator=rng)
            d = topic + torch.randint(0, 50, (cfg["micro_batch"], 12), generator=rng)
            loss = nn.functional.cross_entropy(model(q, d), torch.arange(len(q))) / cfg["accumulation"]
            loss.backward()
            total += loss.item()
        opt.step()
        opt.zero_grad()
        return total

    for n in range(1, cfg["steps"] + 1):
        began = time.perf_counter()
        loss = step()
        say(f"step {n} loss {loss:.4f} {time.perf_counter() - began:.3f} s")
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        step()
        step()
    if rank == 0:
        print(seen.key_averages().table(sort_by="cpu_time_total", row_limit=14, max_name_column_width=50))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
