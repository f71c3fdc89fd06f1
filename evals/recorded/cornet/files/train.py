"""Routes support tickets; two processes, restarted by torchrun. Rank 0 serves its metrics for the collector."""

import json
import os
import subprocess
import sys
import zlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

METRICS_PORT = int(os.environ.get("METRICS_PORT", "9417"))


def tickets(path):
    with open(path) as f:
        for line in f:
            yield json.loads(line)


def encode(rows):
    x = torch.zeros(len(rows), 256)
    for i, row in enumerate(rows):
        for word in (row["subject"] + " " + row["body"]).split():
            x[i, zlib.crc32(word.encode()) % 256] += 1
    return x, torch.tensor([row["queue"] for row in rows])


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    print(f"rank {rank} attempt {attempt}: starting", flush=True)
    if rank == 0:
        exporter = subprocess.Popen([sys.executable, "exporter.py", str(METRICS_PORT)], start_new_session=True)
        try:
            exporter.wait(2)
        except subprocess.TimeoutExpired:
            print(f"metrics on port {METRICS_PORT}", flush=True)
        else:
            raise RuntimeError(f"metrics exporter ended with {exporter.returncode}")
    dist.barrier()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 6)))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(3):
        rows = []
        for n, row in enumerate(tickets(f"tickets/{rank}.jsonl")):
            rows.append(row)
            if len(rows) < 16:
                continue
            x, y = encode(rows)
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            rows = []
            if n % 160 == 15:
                print(f"rank {rank} epoch {epoch} tickets {n + 1} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
