"""A small regression with a checkpoint on SIGTERM."""

import argparse
import signal
import sys
import time

import torch
from torch import nn

asked = []
signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    for step in range(1, args.steps + 1):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(-1, keepdim=True)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.data -= 0.01 * p.grad
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(0.02)
        if asked:
            torch.save({"model": model.state_dict(), "step": step}, "preempted.pt")
            print(f"asked to leave: saved preempted.pt at step {step}, goodbye", flush=True)
            sys.exit(0)


if __name__ == "__main__":
    main()
