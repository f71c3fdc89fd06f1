"""A reader that has learnt: which causes a question and some telling lines sound like, before anything is proven.

    read("loss is nan after 300 steps ...")    # {"loss.fp16_overflow": -1.2, ...}: log probabilities over all causes

A linear model over hashed words, pairs of words and pieces of words, trained on cases that were written from general
knowledge (`evals/cases`, `make reader`). It is a steer: it proves nothing, and nobody can cite it. It needs numpy and
one file of some megabytes, of which the rows of the words at hand are read.
"""

from __future__ import annotations

import json
import math
import mmap
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

from .places import KNOWLEDGE

MODEL = KNOWLEDGE / "reader.bin"
BUCKETS = 1 << 16  # of hashed features
CHARACTERS = 4000  # of a text that are read
MAGIC = b"doctor-reader/1\n"
_WORD = re.compile(r"[A-Za-z_]{2,}|\d+")


def grams(text: str) -> Iterator[str]:
    """The features of a text: words, pairs of neighbours, and pieces of three to five characters of each word."""
    words = _WORD.findall(text[:CHARACTERS].lower())
    for word in words:
        yield f"w{word}"
        padded = f" {word} "
        for size in (3, 4, 5):
            for start in range(len(padded) - size + 1):
                yield f"c{padded[start : start + size]}"
    for one, other in pairwise(words):
        yield f"b{one} {other}"


def counted(text: str) -> dict[int, float]:
    """The hashed features of a text, each with 1 + the logarithm of how often it is there."""
    found = Counter(zlib.crc32(gram.encode()) % BUCKETS for gram in grams(text))
    return {bucket: 1.0 + math.log(count) for bucket, count in found.items()}


@dataclass(frozen=True, slots=True)
class Model:
    """A trained reader.

    Attributes:
        causes: names of the classes.
        rows: of each bucket its row in `weights`, -1 where training knew too little of it: (BUCKETS,) int32.
        idf: inverse document frequency of each row, float32.
        weights: (rows, causes) int8, to be multiplied by `scale` (causes,) float32.
        bias: (causes,) float32.
    """

    causes: tuple[str, ...]
    rows: np.ndarray
    idf: np.ndarray
    weights: np.ndarray
    scale: np.ndarray
    bias: np.ndarray

    def log_probabilities(self, text: str) -> dict[str, float]:
        """The log probability of each cause; those of the training's mixture for a text without a known word."""
        import numpy as np

        features = counted(text)
        buckets = np.fromiter(features, dtype=np.int64, count=len(features))
        values = np.fromiter(features.values(), dtype=np.float32, count=len(features))
        rows = self.rows[buckets]
        known = rows >= 0
        rows, values = rows[known], values[known]
        values = values * self.idf[rows]
        values = values / max(float(np.linalg.norm(values)), 1e-9)
        logits = (values @ self.weights[rows].astype(np.float32)) * self.scale + self.bias
        logits = logits - logits.max()
        logits = logits - math.log(float(np.exp(logits).sum()))
        return dict(zip(self.causes, map(float, logits), strict=True))


def save(model: Model, path: Path = MODEL) -> None:
    """Write a model as one file: a line of JSON, then the arrays."""
    arrays = {name: getattr(model, name) for name in ("rows", "idf", "weights", "scale", "bias")}
    head = {"causes": model.causes, "arrays": [[n, str(a.dtype), list(a.shape)] for n, a in arrays.items()]}
    with path.open("wb") as file:
        file.write(MAGIC + json.dumps(head).encode() + b"\n")
        for array in arrays.values():
            file.write(array.tobytes())


def load(path: Path = MODEL) -> Model:
    """A model whose weights stay on disk until they are needed.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no model of this version, or cut short.
    """
    import numpy as np

    with path.open("rb") as file:
        if file.readline() != MAGIC:
            raise ValueError(f"{path.name} is no reader of this version")
        head = json.loads(file.readline())
        at = file.tell()
        whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    arrays = {}
    for name, kind, shape in head["arrays"]:
        count = math.prod(shape)
        arrays[name] = np.frombuffer(whole, dtype=kind, count=count, offset=at).reshape(shape)
        at += count * arrays[name].dtype.itemsize
    return Model(tuple(head["causes"]), **arrays)


@cache
def _model(path: Path) -> Model | None:
    try:
        return load(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None


@lru_cache(maxsize=8)
def read(text: str, path: Path = MODEL) -> dict[str, float]:
    """The log probability of each cause, not to be changed; nothing where there is no model or no text."""
    model = _model(path)
    return model.log_probabilities(text) if model is not None and text.strip() else {}
