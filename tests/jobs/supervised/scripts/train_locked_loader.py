"""A data set whose readers share a tokenizer guarded by a lock, read by loader workers."""

import threading
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CACHE, LOCK = {}, threading.Lock()


def refresh():
    while True:
        with LOCK:
            time.sleep(0.2)
            CACHE["version"] = CACHE.get("version", 0) + 1


class Texts(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        with LOCK:
            return torch.full((8,), float(index % 7) + CACHE.get("version", 0) * 0)


def main():
    model = nn.Linear(8, 1)
    for step in range(1, 6):
        x = torch.stack([torch.randn(8) for _ in range(16)])
        time.sleep(0.8)
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        print(f"warm-up step {step} loss {loss.item():.4f}", flush=True)
    threading.Thread(target=refresh, daemon=True).start()
    time.sleep(0.1)
    step = 5
    for x in DataLoader(Texts(), batch_size=16, num_workers=2):
        step += 1
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
