"""Rain from pressure maps, data-parallel; the maps come from the storage service over HTTP."""

import io
import os
import time
import urllib.request

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def fetch(name):
    with urllib.request.urlopen(f"{os.environ['STORAGE']}/{name}", timeout=10) as answer:
        return torch.load(io.BytesIO(answer.read()))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print(f"[rank {rank}] attempt {attempt}, fetching maps-{rank}.pt", flush=True)
    maps, rain = fetch(f"maps-{rank}.pt")
    model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(144, 48), nn.ReLU(), nn.Linear(48, 1)))
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(12):
        began, total, count = time.time(), torch.zeros(()), 0
        for i in torch.randperm(len(maps)).split(32):
            loss = nn.functional.binary_cross_entropy_with_logits(model(maps[i]).squeeze(-1), rain[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total, count = total + loss.detach(), count + 1
        dist.all_reduce(total)
        if rank == 0:
            mean = total.item() / count / dist.get_world_size()
            print(f"[rank {rank}] epoch {epoch} loss {mean:.4f} ({time.time() - began:.1f} s)", flush=True)
    print(f"[rank {rank}] finished", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
