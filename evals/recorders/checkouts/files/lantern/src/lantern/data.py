"""Letters as one long row of characters, and batches cut from it."""

from __future__ import annotations

from pathlib import Path

import torch

PAD = "\x00"


class Alphabet:
    """Characters to numbers and back. The same for every collection, so that weights can be carried over."""

    letters = PAD + "\n !&'(),-.0123456789:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

    def __init__(self):
        self.index = {c: i for i, c in enumerate(self.letters)}

    def __len__(self):
        return len(self.letters)

    def encode(self, text: str) -> torch.Tensor:
        return torch.tensor([self.index[c] for c in text if c in self.index], dtype=torch.long)

    def decode(self, ids) -> str:
        return "".join(self.letters[i] for i in ids)


def read(folder: str, val_every: int, alphabet: Alphabet):
    """Training and validation text of a collection: two rows of character numbers."""
    train, val = [], []
    for path in sorted(Path(folder).glob("*.txt")):
        for n, letter in enumerate(path.read_text(encoding="utf-8").split("\n\n\n")):
            (val if n % val_every == val_every - 1 else train).append(letter.strip() + "\n\n")
    return alphabet.encode("".join(train)), alphabet.encode("".join(val))


def batch(row: torch.Tensor, size: int, context: int, generator: torch.Generator):
    """`size` stretches of `context` characters at random places, and the same stretches one character on."""
    starts = torch.randint(len(row) - context - 1, (size,), generator=generator)
    x = torch.stack([row[s : s + context] for s in starts])
    y = torch.stack([row[s + 1 : s + 1 + context] for s in starts])
    return x, y
