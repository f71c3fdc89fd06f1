import csv

import torch
from torch.utils.data import DataLoader

from .words import PAD

DESKS = ("waste", "parking", "registry", "schools", "water", "permits")


def read(path):
    with open(path, newline="", encoding="utf-8") as f:
        return [(r["text"], DESKS.index(r["desk"])) for r in csv.DictReader(f, delimiter="\t")]


def pad(rows):
    most = max(map(len, rows))
    ids = torch.tensor([r + [PAD] * (most - len(r)) for r in rows])
    return ids, (ids != PAD).long()


def loader(rows, words, most, batch_size, shuffle):
    def collate(part):
        ids, mask = pad([words(text, most) for text, _ in part])
        return {"input_ids": ids, "attention_mask": mask, "labels": torch.tensor([d for _, d in part])}
    return DataLoader(rows, batch_size, shuffle=shuffle, collate_fn=collate)
