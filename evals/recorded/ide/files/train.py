"""Character model of recipes; a job of a few hundred steps, resumes from the newest checkpoint in --ckpt."""
import argparse
import glob
import logging
import os
import random

import torch
from torch import nn
from torch.nn import functional as F

log = logging.getLogger("charlm")
VERBS, THINGS = "chop stir boil whisk fold roast season rest".split(), "onions flour the broth eggs basil lentils rice".split()
CHARS = sorted(set("abcdefghijklmnopqrstuvwxyz .,\n0123456789"))


def corpus(seed, n=4000):
    rng = random.Random(seed)
    text = "".join(f"{rng.choice(VERBS)} {rng.choice(THINGS)} for {rng.randint(1, 40)} minutes.\n" for _ in range(n))
    return torch.tensor([CHARS.index(c) for c in text])


class Model(nn.Module):
    def __init__(self, dim=64, layers=1):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), dim)
        self.rnn = nn.GRU(dim, dim, layers, batch_first=True)
        self.out = nn.Linear(dim, len(CHARS))

    def forward(self, ids):
        return self.out(self.rnn(self.embed(ids))[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--ckpt", default="checkpoints")
    p.add_argument("--init", default="")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--save-every", type=int, default=100)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()
    logging.basicConfig(format="[%(asctime)s][%(levelname)s] %(message)s", level=logging.INFO)
    torch.manual_seed(args.seed)
    os.makedirs(args.ckpt, exist_ok=True)
    data, held = corpus(1), corpus(2, 300)
    model = Model()
    opt = torch.optim.Adam(model.parameters(), args.lr)
    start = 0
    log.info("args: %s", vars(args))
    if found := sorted(glob.glob(f"{args.ckpt}/step_*.pt")):
        log.info("resuming from %s", found[-1])
        state = torch.load(found[-1], map_location="cpu")
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
        start = state["step"]
    elif args.init:
        log.info("initial weights: %s", args.init)
        model.load_state_dict(torch.load(args.init, map_location="cpu")["model"])
    for step in range(start + 1, args.steps + 1):
        at = torch.randint(len(data) - 65, (32,)).tolist()
        rows = torch.stack([data[i:i + 65] for i in at])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        opt.step()
        if step % 10 == 0:
            log.info("step %d/%d loss %.4f grad_norm %.3f lr %.2e", step, args.steps, loss, norm, args.lr)
        if step % args.save_every == 0:
            with torch.no_grad():
                ev = F.cross_entropy(model(held[None, :2000]).flatten(0, 1), held[1:2001])
            log.info("eval loss %.4f", ev)
            path = f"{args.ckpt}/step_{step:06d}.pt"
            torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "step": step}, path)
            log.info("saved %s", path)
    log.info("done")


if __name__ == "__main__":
    main()
