"""Evaluation numbers while training, as written some years ago."""

import numpy as np
import torch
from torch import nn


def summary(values):
    return np.asarray(values, dtype=np.float).mean()


def main():
    model = nn.Linear(8, 1)
    losses = []
    for step in range(1, 21):
        loss = (model(torch.randn(16, 8)) - 1).pow(2).mean()
        losses.append(loss.item())
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % 10 == 0:
            print(f"mean loss {summary(losses):.4f}", flush=True)


if __name__ == "__main__":
    main()
