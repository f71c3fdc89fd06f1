"""Byte pair encoding in a few lines."""
from collections import Counter


class BPE:
    def __init__(self, merges=None):
        self.merges = merges or {}

    def train(self, text, vocab_size=512, verbose=True):
        ids = list(text.encode())
        for n in range(vocab_size - 256):
            pairs = Counter(zip(ids, ids[1:]))
            if not pairs:
                break
            best = max(pairs, key=pairs.get)
            ids = self._merge(ids, best, 256 + n)
            self.merges[best] = 256 + n
            if verbose:
                print(f"merge {n}: {best} -> {256 + n} ({pairs[best]} times)")
        return self

    @staticmethod
    def _merge(ids, pair, new):
        out, i = [], 0
        while i < len(ids):
            if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
                out.append(new)
                i += 2
            else:
                out.append(ids[i])
                i += 1
        return out

    def encode(self, text):
        ids = list(text.encode())
        for pair, new in self.merges.items():
            ids = self._merge(ids, pair, new)
        return ids
