import csv

import lightning as L
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

NAMES = ("anchor", "bell", "crown", "diamond", "eagle", "fish", "gate", "harp", "ivy", "jug")
SIDE = 14


def read(path):
    """Crops of (n, 1, 14, 14) in 0..1 and their stamps."""
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    x = np.stack([np.asarray([int(c, 16) for c in row["pixels"]], np.float32) for row in rows]) / 15
    y = torch.tensor([NAMES.index(row["stamp"]) for row in rows])
    return torch.from_numpy(x).view(-1, 1, SIDE, SIDE), y


class Shift:
    """Moves a batch by up to `by` pixels."""

    def __init__(self, by):
        self.by = by

    def __call__(self, x):
        if not self.by:
            return x
        dy, dx = torch.randint(-self.by, self.by + 1, (2,)).tolist()
        return torch.roll(x, (dy, dx), (2, 3))


class Stamps(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage=None):
        self.train, self.val = (TensorDataset(*read(self.cfg[k])) for k in ("train", "val"))

    def train_dataloader(self):
        return DataLoader(self.train, self.cfg["batch_size"], shuffle=True, num_workers=self.cfg["workers"])

    def val_dataloader(self):
        return DataLoader(self.val, 256, num_workers=self.cfg["workers"])
