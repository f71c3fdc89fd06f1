"""Tiles of scenes, cut into patches."""

import csv

import torch

from patch_ops import unfold4


class Scenes:
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = [(int(r["cover"]), [float(v) for v in r["pixels"].split()]) for r in csv.DictReader(f)]

    def batches(self, size):
        for i in range(0, len(self.rows), size):
            part = self.rows[i:i + size]
            tiles = torch.tensor([p for _, p in part]).view(-1, 16, 16)
            yield unfold4(tiles), torch.tensor([c for c, _ in part])
