"""Pairs of a text and a number; batches come in an order of their own generator."""
import torch

from . import letters


def read(path):
    with open(path, encoding="utf-8") as f:
        return [tuple(line.rstrip("\n").split("\t")) for line in f if line.strip()]


def tensor(rows):
    most = max(map(len, rows))
    return torch.tensor([r + [letters.PAD] * (most - len(r)) for r in rows])


def encode(pairs):
    return tensor([letters.source(s) for s, _ in pairs]), tensor([letters.target(t) for _, t in pairs])


class Stream:
    """Batches without end: each pass over the pairs in a new order."""

    def __init__(self, pairs, batch, seed):
        self.pairs, self.batch = pairs, batch
        self.gen = torch.Generator().manual_seed(seed)
        self.order, self.at = self._shuffle(), 0

    def _shuffle(self):
        return torch.randperm(len(self.pairs), generator=self.gen).tolist()

    def next(self):
        if self.at + self.batch > len(self.order):
            self.order, self.at = self._shuffle(), 0
        part = self.order[self.at:self.at + self.batch]
        self.at += self.batch
        return encode([self.pairs[i] for i in part])

    def state_dict(self):
        return {"order": self.order, "at": self.at, "gen": self.gen.get_state()}

    def load_state_dict(self, state):
        self.order, self.at = state["order"], state["at"]
        self.gen.set_state(state["gen"])
