"""Surrogate for airflow around profiles: residual MLP, gradients averaged over ranks."""

import logging
import os
import time

import torch
import torch.distributed as dist
from torch import nn

STEPS, BATCH, WIDTH = int(os.environ.get("STEPS", 60)), 1536, 384


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    logging.basicConfig(format=f"%(asctime)s [rank{rank}] %(message)s", level=logging.INFO)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [nn.Linear(24, WIDTH), nn.SiLU()]
    for _ in range(3):
        layers += [nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.SiLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 3))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rng = torch.Generator().manual_seed(100 + rank)
    truth = torch.randn(24, 3, generator=torch.Generator().manual_seed(9))
    logging.info("world size %d, %d parameters, pid %d", world, sum(p.numel() for p in model.parameters()), os.getpid())
    busy = waited = 0.0
    for step in range(1, STEPS + 1):
        t0 = time.perf_counter()
        x = torch.randn(BATCH, 24, generator=rng)
        loss = nn.functional.mse_loss(model(x), torch.tanh(x @ truth))
        opt.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        t1 = time.perf_counter()
        dist.all_reduce(flat)
        t2 = time.perf_counter()
        at = 0
        for p in model.parameters():
            p.grad.copy_(flat[at : at + p.numel()].view_as(p) / world)
            at += p.numel()
        opt.step()
        busy += t1 - t0 + time.perf_counter() - t2
        waited += t2 - t1
        if step % 5 == 0:
            logging.info("step %d loss %.4f compute %.1f ms all_reduce %.1f ms", step, loss.item(), 200 * busy, 200 * waited)
            busy = waited = 0.0
    logging.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
