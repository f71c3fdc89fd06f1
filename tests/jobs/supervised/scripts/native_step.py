"""A loop whose preprocessing calls into a C library."""

import argparse
import ctypes
import os

import torch
from torch import nn


def checksum(address, size):
    return sum(ctypes.string_at(address, size))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=30)
    args = parser.parse_args()
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    buffer = ctypes.create_string_buffer(b"0123456789abcdef")
    for step in range(1, args.steps + 1):
        x = torch.randn(16, 8)
        loss = (model(x) - x.sum(-1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        address = ctypes.addressof(buffer) if step < 12 or rank else 8
        checksum(address, 16)


if __name__ == "__main__":
    main()
