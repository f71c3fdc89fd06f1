"""Gesture recognition: each recording is a folder with one array for each sensor and second."""

import argparse
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.tensorboard import SummaryWriter

SENSORS, SECONDS, RATE = 12, 10, 25


class Recordings(Dataset):
    def __init__(self, root):
        self.root = root
        self.names = sorted(os.listdir(root))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        folder = os.path.join(self.root, self.names[i])
        parts = [[np.load(os.path.join(folder, f"s{s:02d}_{t:02d}.npy")) for t in range(SECONDS)] for s in range(SENSORS)]
        x = np.stack([np.concatenate(p) for p in parts])
        return torch.from_numpy(x), int(self.names[i][-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="recordings")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0)
    asked = parser.parse_args()
    torch.manual_seed(0)
    data = Recordings(asked.data)
    loader = DataLoader(data, asked.batch_size, shuffle=True, num_workers=asked.workers)
    model = nn.Sequential(nn.Conv1d(SENSORS, 32, 7, 2), nn.ReLU(), nn.Conv1d(32, 32, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool1d(1),
                          nn.Flatten(), nn.Linear(32, 4))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    board = SummaryWriter("tb")
    print(f"{len(data)} recordings, {len(loader)} batches an epoch", flush=True)
    step = 0
    for epoch in range(asked.epochs):
        began = time.perf_counter()
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            board.add_scalar("loss", loss.item(), step)
        seconds = time.perf_counter() - began
        print(f"epoch {epoch} loss {loss.item():.4f} {seconds:.1f} s {len(data) / seconds:.0f} recordings/s", flush=True)
    board.close()


if __name__ == "__main__":
    main()
