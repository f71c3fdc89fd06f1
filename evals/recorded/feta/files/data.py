"""Chapters as character numbers, gaps where the vowels stood."""
from pathlib import Path

import torch

VOWELS = "aeiouAEIOU"
SYMBOLS = "*\n !'(),-.0123456789:;?" + "".join(chr(c) for c in range(65, 91)) + "".join(chr(c) for c in range(97, 123))
INDEX = {c: i for i, c in enumerate(SYMBOLS)}


def encode(text):
    """(what the network sees, what it is to say; -1 where there is no gap)."""
    seen = torch.tensor([INDEX["*"] if c in VOWELS else INDEX[c] for c in text if c in INDEX])
    meant = torch.tensor([VOWELS.index(c) if c in VOWELS else -1 for c in text if c in INDEX])
    return seen, meant


class Chapters:
    """The chapters of one rank: every world-size-th file of the folder, beginning with its own number."""

    def __init__(self, folder, rank, world):
        files = sorted(Path(folder).glob("chapter*.txt"))
        self.files = files[rank::world]
        self.seen, self.meant = encode("\n".join(f.read_text(encoding="utf-8") for f in self.files))

    def batch(self, size, length, generator):
        starts = torch.randint(len(self.seen) - length, (size,), generator=generator)
        return (torch.stack([self.seen[s : s + length] for s in starts]),
                torch.stack([self.meant[s : s + length] for s in starts]))


def held_out(folder, length):
    """The validation text in rows of `length`."""
    seen, meant = encode((Path(folder) / "val.txt").read_text(encoding="utf-8"))
    n = len(seen) // length * length
    return seen[:n].view(-1, length), meant[:n].view(-1, length)
