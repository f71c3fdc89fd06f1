"""Character GPT, data parallel over Gloo. Ranks come from torchrun or from the environment."""

import argparse
import json
import logging
import math
import os
import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

p = argparse.ArgumentParser()
p.add_argument("--name", default="base")
p.add_argument("--layers", type=int, default=2)
p.add_argument("--width", type=int, default=64)
p.add_argument("--heads", type=int, default=4)
p.add_argument("--block", type=int, default=48)
p.add_argument("--batch", type=int, default=16)
p.add_argument("--steps", type=int, default=200)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--warmup", type=int, default=20)
p.add_argument("--init-timeout", type=int, default=600)
p.add_argument("--pause", type=float, default=0.0, help="seconds between steps, to leave the node to others")
args = p.parse_args()

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s rank={rank} %(levelname)s %(message)s", datefmt="%H:%M:%S")
log = logging.getLogger("gpt")
log.info("start: %s, pid %d, world size %d, master %s:%s", os.uname().nodename, os.getpid(), world, os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"])
dist.init_process_group("gloo", timeout=timedelta(seconds=args.init_timeout))
log.info("process group up (gloo, %d ranks)", dist.get_world_size())

run = Path("runs") / args.name
if rank == 0:
    run.mkdir(parents=True)
    (run / "args.json").write_text(json.dumps(vars(args), indent=1))
dist.barrier()

words = "the quick grey cat sat on a warm stone wall and watched two small boats drift down river past our mill".split()
rng = random.Random(3)
text = " ".join(rng.choice(words) for _ in range(20000))
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text])


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h, self.n1, self.n2 = h, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(chars), args.width), nn.Embedding(args.block, args.width)
        self.blocks = nn.Sequential(*[Block(args.width, args.heads) for _ in range(args.layers)])
        self.norm, self.head = nn.LayerNorm(args.width), nn.Linear(args.width, len(chars), bias=False)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.tok(ids) + self.pos.weight[: ids.shape[1]])))


torch.manual_seed(1337)
model = DDP(GPT())
log.info("%.2fM parameters, %d characters in the vocabulary", sum(q.numel() for q in model.parameters()) / 1e6, len(chars))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95))
gen = torch.Generator().manual_seed(100 + rank)
history = (run / "history.jsonl").open("w", buffering=1) if rank == 0 else None
for step in range(1, args.steps + 1):
    began = time.time()
    lr = args.lr * min(1, step / args.warmup) * (0.55 + 0.45 * math.cos(math.pi * step / args.steps))
    optimizer.param_groups[0]["lr"] = lr
    at = torch.randint(len(data) - args.block - 1, (args.batch,), generator=gen)
    window = data[at[:, None] + torch.arange(args.block + 1)]
    loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    time.sleep(args.pause)
    if step % 10 == 0:
        log.info("step %d/%d loss=%.4f gnorm=%.3f lr=%.2e dt=%.0fms", step, args.steps, loss.item(), norm, lr, 1000 * (time.time() - began))
        if history:
            history.write(json.dumps({"step": step, "loss": round(loss.item(), 5), "grad_norm": round(norm.item(), 4), "lr": lr}) + "\n")
if rank == 0:
    torch.save(model.module.state_dict(), run / "weights.pt")
log.info("training done")
dist.destroy_process_group()
