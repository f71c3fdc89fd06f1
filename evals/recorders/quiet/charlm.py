"""Character language model, one process."""

import argparse
import math
import random
import time

import torch
import yaml
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class LM(nn.Module):
    def __init__(self, vocab, cfg):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, cfg["dim"]), nn.Embedding(cfg["context"], cfg["dim"])
        self.blocks = nn.Sequential(*[Block(cfg["dim"], cfg["heads"]) for _ in range(cfg["layers"])])
        self.norm, self.head = nn.LayerNorm(cfg["dim"]), nn.Linear(cfg["dim"], vocab, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tok(x) + self.pos(torch.arange(x.shape[1])))))


def corpus(seed):
    rng = random.Random(seed)
    words = "the a one old small river stone keeper lamp road went came saw left near under over quiet grey morning".split()
    return " ".join(rng.choice(words) + ("." if rng.random() < 0.1 else "") for _ in range(12000))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="config.yaml")
    ap.add_argument("--threads", type=int, default=0)
    args = ap.parse_args()
    cfg = yaml.safe_load(open(args.config))
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(cfg["seed"])
    text = corpus(cfg["seed"])
    chars = sorted(set(text))
    ids = torch.tensor([chars.index(c) for c in text])
    split = int(0.9 * len(ids))
    model = LM(len(chars), cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=0.1)
    print(f"vocabulary {len(chars)}, {len(ids):,} characters, {sum(p.numel() for p in model.parameters()):,} parameters")

    def batch(a, b):
        at = torch.randint(a, b - cfg["context"] - 1, (cfg["batch_size"],))
        x = torch.stack([ids[i : i + cfg["context"] + 1] for i in at])
        return x[:, :-1], x[:, 1:]

    began, seen = time.time(), 0
    for step in range(cfg["steps"]):
        lr = cfg["lr"] * min(1, (step + 1) / cfg["warmup"]) * 0.5 * (1 + math.cos(math.pi * step / cfg["steps"]))
        for g in opt.param_groups:
            g["lr"] = lr
        x, y = batch(0, split)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        seen += x.numel()
        if step % cfg["log_every"] == 0:
            speed = seen / (time.time() - began)
            print(f"step {step:5d} | loss {loss.item():.4f} | norm {norm:.3f} | lr {lr:.2e} | {speed:,.0f} tok/s")
        if step and step % cfg["eval_every"] == 0:
            with torch.no_grad():
                x, y = batch(split, len(ids))
                print(f"step {step:5d} | val loss {F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item():.4f}")
        if step and step % cfg["save_every"] == 0:
            torch.save(model.state_dict(), cfg["out"])
            print(f"step {step:5d} | wrote {cfg['out']}")
    extra = cfg["report"]["sample_tokens"]
    print(f"finished {cfg['steps']} steps in {time.time() - began:.1f} s, sampling {extra} tokens")


if __name__ == "__main__":
    main()
