"""Near duplicates by MinHash: signatures of word n-grams, candidates by bands, and what their overlap comes to."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

PERMUTATIONS, BANDS = 64, 16  # four values a band: pairs from about half alike become candidates
WORDS = 5  # of one shingle
LENGTH = 20_000  # characters of a text that are compared
CROWD = 50  # texts of one bucket that are compared with each other
WIDE = ("\u2e80", "\uffdc")  # scripts written without spaces


def words(text: str, limit: int = LENGTH) -> list[bytes]:
    """Words of a text, lower case; single characters where it is written without spaces."""
    text = text[:limit].lower()
    parts = text.split()
    if len(text) > 12 * max(1, len(parts)) and any(WIDE[0] <= c <= WIDE[1] for c in text[:200]):
        return [c.encode("utf-8", "surrogatepass") for c in text if not c.isspace()]
    return [part.encode("utf-8", "surrogatepass") for part in parts]


def grams(parts: list[bytes], size: int) -> np.ndarray:
    """Hashes of the runs of `size` words, uint64; empty where there are fewer words."""
    import numpy as np

    if len(parts) < size:
        return np.empty(0, "u8")
    hashed = np.fromiter((zlib.crc32(p) for p in parts), "u8", len(parts))
    out = np.zeros(len(parts) - size + 1, "u8")
    for n in range(size):
        out = _mixed(out ^ (hashed[n : n + len(out)] + np.uint64(0x9E3779B97F4A7C15)))
    return out


def _mixed(values: np.ndarray) -> np.ndarray:
    """Every bit spread over all (the finalizer of splitmix64)."""
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Signatures:
    """MinHash signatures of texts that are added one by one."""

    def __init__(self) -> None:
        import numpy as np

        rng = np.random.default_rng(1)
        self._factor = rng.integers(1, 1 << 63, PERMUTATIONS, "u8") | np.uint64(1)
        self._rows: list[np.ndarray] = []
        self._index: list[int] = []

    def add(self, number: int, text: str) -> None:
        """Take a text in under a number of the caller's; one of fewer than `WORDS` words is passed over."""
        shingles = grams(words(text), WORDS)
        if len(shingles) < 3:
            return
        hashed = _mixed(shingles[:, None] * self._factor[None, :])
        self._rows.append(hashed.min(axis=0))
        self._index.append(number)

    def pairs(self, alike: float = 0.75) -> Iterator[tuple[int, int, float]]:
        """Numbers of texts whose n-grams overlap by at least `alike` (Jaccard, estimated), with the estimate.

        Each text is paired once, with the first it resembles.
        """
        import numpy as np

        if not self._rows:
            return
        table = np.stack(self._rows)
        width = PERMUTATIONS // BANDS
        buckets: dict[tuple[int, bytes], list[int]] = defaultdict(list)
        for n in range(len(table)):
            best = (0.0, -1)
            for band in range(BANDS):
                bucket = buckets[band, table[n, band * width : (band + 1) * width].tobytes()]
                for other in bucket:
                    share = float((table[n] == table[other]).mean())
                    best = max(best, (share, other))
                if len(bucket) < CROWD:
                    bucket.append(n)
                if best[0] >= 0.999:
                    break
            if best[0] >= alike:
                yield self._index[best[1]], self._index[n], best[0]
