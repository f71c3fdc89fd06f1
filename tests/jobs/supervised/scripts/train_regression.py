"""Regression with Adam or SGD; what happens on a loss that is not finite is an option."""

import argparse
import math
import sys

import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--skip", type=int, default=-1)
    parser.add_argument("--on-nan", default="raise", choices=["raise", "go-on", "skip"])
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    print(f"learning_rate: {args.lr} optimizer: SGD max_grad_norm: 0.0", flush=True)
    bad = 0
    for step in range(1, args.steps + 1):
        x = torch.randn(32, 8)
        if step == args.skip:
            x = x * float("inf")
        loss = (model(x) - x.sum(-1, keepdim=True) * 3).pow(2).mean()
        if not math.isfinite(loss.item()) and args.on_nan == "raise":
            raise FloatingPointError(f"loss is {loss.item()} at step {step}")
        if not math.isfinite(loss.item()) and args.on_nan == "skip":
            print(f"step {step}: loss is not finite, step skipped", flush=True)
            continue
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf)
        optimizer.step()
        bad += not math.isfinite(loss.item())
        print(f"step {step} loss {loss.item():.4f} grad_norm {norm.item():.3f} lr {args.lr:g}", flush=True)
    if bad:
        sys.exit(1)
    print(f"training finished after {args.steps} steps", flush=True)


if __name__ == "__main__":
    main()
