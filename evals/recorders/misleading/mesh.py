"""A column-parallel MLP over a small mesh of processes; rank 0 lays out the mesh."""

import logging
import os
import sys

import torch
import torch.distributed as dist
import yaml
from torch import nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s rank={RANK} %(levelname)s %(message)s")
log = logging.getLogger("mesh")


def lay_out(cfg):
    """The mesh coordinates of every rank, as rows of (data, pipe, tensor)."""
    tp, pp = cfg["tensor_parallel"], cfg["pipeline_parallel"]
    dp, rest = divmod(WORLD, tp * pp)
    log.info("laying out world %d as tp %d, pp %d, dp %d", WORLD, tp, pp, dp)
    coordinates = [(r // (tp * pp), r // tp % pp, r % tp) for r in range(WORLD - rest)]
    return torch.tensor(coordinates).reshape(WORLD, 3)


def main():
    with open("parallel.yaml") as f:
        cfg = yaml.safe_load(f)
    torch.manual_seed(RANK)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    log.info("process group ready (%s)", dist.get_backend())
    mesh = lay_out(cfg["mesh"]) if RANK == 0 else torch.zeros(WORLD, 3, dtype=torch.long)
    dist.broadcast(mesh, 0)
    tp = cfg["mesh"]["tensor_parallel"]
    groups = [dist.new_group(list(range(i, i + tp))) for i in range(0, WORLD, tp)]
    group = groups[RANK // tp]
    log.info("coordinate %s", mesh[RANK].tolist())
    hidden = cfg["model"]["hidden"] // tp
    up, down = nn.Linear(32, hidden), nn.Linear(hidden, 8)
    opt = torch.optim.Adam([*up.parameters(), *down.parameters()], lr=cfg["lr"])
    for step in range(cfg["steps"]):
        g = torch.Generator().manual_seed(step)
        x = torch.randn(32, 32, generator=g)
        part = down(torch.relu(up(x)))
        whole = part.detach().clone()
        dist.all_reduce(whole, group=group)
        loss = nn.functional.mse_loss(whole + part - part.detach(), x[:, :8])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            log.info("step %d loss %.4f", step, loss.item())
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
