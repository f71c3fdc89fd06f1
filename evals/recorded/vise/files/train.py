"""Machine sounds, sound or worn: a CNN on energies that a small native kernel computes."""

import argparse
import ctypes
import math
import os
import random

import torch
from torch import nn
from torch.utils.cpp_extension import load
from torch.utils.tensorboard import SummaryWriter


def kernel():
    os.makedirs("ext", exist_ok=True)
    load("energies", ["energies.cpp"], build_directory="ext", extra_cflags=["-O2"], is_python_module=False, verbose=True)
    lib = ctypes.CDLL("ext/energies.so")
    lib.energies.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    return lib


def clip(rng, worn):
    base = rng.uniform(0.05, 0.12)
    return torch.tensor([math.sin(i * base) + (worn * 0.6 * math.sin(i * base * 7.3)) + rng.gauss(0, 0.3) for i in range(512)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    print("torch", torch.__version__, "threads", torch.get_num_threads(), flush=True)
    lib = kernel()
    rng = random.Random(4)
    torch.manual_seed(4)
    model = nn.Sequential(nn.Conv1d(1, 8, 5), nn.ReLU(), nn.Conv1d(8, 8, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    writer = SummaryWriter("tb")
    for step in range(args.steps):
        labels = [rng.randrange(2) for _ in range(8)]
        x = torch.zeros(8, 1, 64)
        for i, worn in enumerate(labels):
            wave = clip(rng, worn).contiguous()
            lib.energies(wave.data_ptr(), 512, 8, x[i, 0].data_ptr())
        loss = nn.functional.cross_entropy(model(x), torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss.item(), step)
        if step % 10 == 0:
            print(f"step {step:4d}  loss {loss.item():.4f}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
