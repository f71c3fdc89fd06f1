"""Sessions: csv files of a wrist, 20 samples a second, cut into windows of one activity."""
import csv
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

ACTIVITIES = ("lie", "sit", "stand", "walk", "stairs")


def read(path):
    with open(path, newline="") as f:
        rows = list(csv.DictReader(f))
    x = torch.tensor([[float(r[k]) for k in ("x", "y", "z")] for r in rows])
    return x, [ACTIVITIES.index(r["activity"]) for r in rows]


def windows(path, window, hop):
    """Windows in which one activity is going on all the time."""
    x, doing = read(path)
    for at in range(0, len(x) - window + 1, hop):
        if len(set(doing[at:at + window])) == 1:
            yield x[at:at + window], doing[at]


def dataset(names, cfg):
    found = [w for n in names for w in windows(Path(cfg["folder"]) / f"{n}.csv", cfg["window"], cfg["hop"])]
    return TensorDataset(torch.stack([x for x, _ in found]), torch.tensor([d for _, d in found]))


def loaders(cfg):
    every = sorted(p.stem for p in Path(cfg["data"]["folder"]).glob("*.csv"))
    held = cfg["data"]["val"]
    train, val = dataset([n for n in every if n not in held], cfg["data"]), dataset(held, cfg["data"])
    batch, workers = cfg["train"]["batch"], cfg["train"]["workers"]
    return (DataLoader(train, batch, shuffle=True, drop_last=True, num_workers=workers),
            DataLoader(val, batch, num_workers=workers))


def check(folder):
    for path in sorted(Path(folder).glob("*.csv")):
        x, doing = read(path)
        yield f"{path.name}: {len(x)} samples, {len(set(doing))} activities, |a| {x.norm(dim=1).mean():.2f} g, nan {int(x.isnan().sum())}"
