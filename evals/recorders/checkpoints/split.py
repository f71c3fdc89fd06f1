"""Token classifier whose wide layers are split over the processes, each with its part in a file of its own."""
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


class SplitMLP(nn.Module):
    def __init__(self, dim, hidden, parts):
        super().__init__()
        self.up, self.down = nn.Linear(dim, hidden // parts), nn.Linear(hidden // parts, dim, bias=False)

    def forward(self, x):
        return x + Sum.apply(self.down(F.gelu(self.up(x))))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--hidden", type=int, default=128)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--save", default="ckpt")
    p.add_argument("--load", default="")
    args = p.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        print(vars(args) | {"world_size": world}, flush=True)
    torch.manual_seed(1)
    embed, head = nn.Embedding(64, 32), nn.Linear(32, 8)
    torch.manual_seed(10 + rank)
    blocks = nn.ModuleList(SplitMLP(32, args.hidden, world) for _ in range(2))
    model = nn.Sequential(embed, *blocks, head)
    opt, start = torch.optim.Adam(model.parameters(), 3e-3), 0
    if args.load:
        state = torch.load(f"{args.load}/mp_rank_{rank:02d}.pt")
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        start = state["step"]
    gen = torch.Generator().manual_seed(3 + start)
    for step in range(start + 1, start + args.steps + 1):
        ids = torch.randint(64, (128,), generator=gen)
        loss = F.cross_entropy(model(ids), ids * 5 % 8)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0 and step % 10 == 0:
            print(f"iteration {step:5d} | lm loss {loss.item():.4E} | learning rate 3.000E-03", flush=True)
    os.makedirs(args.save, exist_ok=True)
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, f"{args.save}/mp_rank_{rank:02d}.pt")
    dist.barrier()
    if rank == 0:
        print(f"saved {sorted(os.listdir(args.save))} at iteration {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
