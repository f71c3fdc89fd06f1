"""Click prediction from compressed shards, data-parallel over Gloo, with the time of each part of a step."""

import gzip
import json
import logging
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s r{RANK} %(levelname)s %(message)s")
log = logging.getLogger("clicks")


def batches(size):
    path = f"shards/clicks-{RANK}.jsonl.gz"
    log.info("reading %s", path)
    while True:
        with gzip.open(path, "rt") as f:
            rows = []
            for line in f:
                rows.append(json.loads(line))
                if len(rows) == size:
                    yield torch.tensor([r["x"] for r in rows]), torch.tensor([r["y"] for r in rows])
                    rows = []


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 1))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    source, size = batches(64), sum(p.numel() for p in model.parameters())
    for step in range(40):
        t0 = time.time()
        x, y = next(source)
        t1 = time.time()
        loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(-1), y)
        opt.zero_grad()
        loss.backward()
        t2 = time.time()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= WORLD
        t3 = time.time()
        opt.step()
        if t3 - t2 > 0.15:
            log.warning("all-reduce of %d kB took %.0f ms, network congested?", size * 4 // 1000, 1000 * (t3 - t2))
        if step % 4 == 0:
            log.info("step %d loss %.4f | load %.0f ms | compute %.0f ms | all-reduce %.0f ms", step, loss.item(),
                     1000 * (t1 - t0), 1000 * (t2 - t1), 1000 * (t3 - t2))
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
