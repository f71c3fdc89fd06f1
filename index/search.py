"""Hybrid search: BM25 and vectors, fused by reciprocal rank; below a threshold nothing is an answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from . import build as building
from . import encoder, lexicon, model, store
from .deadline import Stopped, Work
from .lexicon import Lexicon
from .places import Sources, cache_folder

DEADLINE = 5.0  # seconds for the vectors; after that, words alone answer
POOL = 50  # candidates of each ranking
RANK_CONSTANT = 60  # of reciprocal rank fusion

# Calibrated on the questions of benchmarks/index.py: a passage is an answer when its cosine is high on its
# own, or the shared words bear it out: the fainter the cosine, the more of them. Words alone must share as many.
COSINE_ALONE = 0.48
COSINE_FAIR, OVERLAP_FAIR = 0.30, 0.36
OVERLAP_ALONE, COSINE_FAINT = 0.48, 0.20


@dataclass(frozen=True, slots=True)
class Result:
    """A passage that bears on the query.

    Attributes:
        score: fused rank, 1.0 = first in every ranking that was asked.
        cosine: similarity of meaning, None when only words were compared.
        overlap: share of the query's information found in the passage, 0 to 1.
    """

    document: str
    headings: list[str]
    score: float
    text: str
    cause: str | None
    kind: str
    cosine: float | None
    overlap: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready mapping."""
        return asdict(self)


class Results(list[Result]):
    """Results, best first. `degraded` says in words what could not be asked."""

    degraded: str = ""


def search(
    query: str,
    *,
    k: int = 5,
    cache_dir: Path | None = None,
    sources: Sources | None = None,
    lexical_only: bool = False,
) -> Results:
    """Passages that answer a query, best first; none when nothing bears on it.

    Vectors are used where an index is built and answers within five seconds; otherwise words alone answer and
    `degraded` says why. A broken index is moved aside, so that the next `build` makes a new one.
    """
    sources, cache = sources or Sources(), cache_dir or cache_folder()
    asked, why = None, ""
    if not lexical_only:
        asked, why = _ask_vectors(query, cache, sources)
    words = _lexicon(sources, cache)
    bm25, overlap = words.scores(query)
    cosines: dict[int, float] | None = None
    if asked is not None:
        cosines, why = asked.answer()
        if cosines is not None and any(number >= len(words.chunks) for number in cosines):
            cosines, why = None, "the index changed while it was read"
    found = _fused(words, bm25, overlap, cosines, k)
    found.degraded = why
    return found


def lexical(
    query: str, k: int = 5, *, cache_dir: Path | None = None, sources: Sources | None = None
) -> Results:
    """The same by words alone: loads neither Chroma nor a model, nor numpy once the lexicon is cached."""
    return search(query, k=k, cache_dir=cache_dir, sources=sources, lexical_only=True)


def _lexicon(sources: Sources, cache: Path) -> Lexicon:
    """The lexicon, kept in memory while the sources stay the same."""
    return _loaded(lexicon.fingerprint(sources), sources, cache)


@lru_cache(maxsize=2)
def _loaded(name: str, sources: Sources, cache: Path) -> Lexicon:
    return lexicon.load(sources, cache)


class _Vectors:
    """A question under way to Chroma, in a thread, while the lexicon is read."""

    def __init__(self, query: str, version: store.Version, encoder_folder: Path) -> None:
        self.version = version
        self.encoder_folder = encoder_folder
        self.stage = "loading"
        self.work = Work(self._nearest, query)

    def _nearest(self, query: str) -> dict[int, float]:
        import numpy  # noqa: F401
        import onnxruntime  # noqa: F401
        import tokenizers  # noqa: F401

        # From here two threads may import at once: the encoder's has all it needs.
        encoding = Work(encoder.encode, query, self.encoder_folder)
        import chromadb  # noqa: F401

        self.stage = "encoding"
        vector = encoding.result(DEADLINE)
        self.stage = "asking"
        return store.nearest(self.version, store.server(), vector, POOL)

    def answer(self) -> tuple[dict[int, float] | None, str]:
        """Cosines by chunk number, or None with the reason. What is at fault is moved aside, nothing else."""
        try:
            return self.work.result(DEADLINE), ""
        except Stopped as e:
            if self.stage == "loading":
                return None, f"searched by words alone: {e} while libraries were loaded"
            if self.stage == "asking":
                store.quarantine(self.version)
            else:
                encoder.discard(self.encoder_folder)
            return None, f"searched by words alone: the index failed ({e}); `doctor index build` repairs it"


def _ask_vectors(query: str, cache: Path, sources: Sources) -> tuple[_Vectors | None, str]:
    try:
        weights = _weights_name(model.model_folder())
    except model.ModelUnusable as e:
        return None, f"searched by words alone: {e}"
    name = building.collection_name(lexicon.fingerprint(sources), weights)
    url = store.server()
    version = store.Version(name, None) if url else store.current(cache, name)
    folder = encoder.encoder_folder(cache, weights)
    if version is None or not (folder / "agreement.json").is_file():
        return None, "searched by words alone: no current vector index; `doctor index build` makes one"
    return _Vectors(query, version, folder), ""


def _weights_name(folder: Path) -> str:
    """Hash that names the weights. The bundled ones were checked when the index was built."""
    import os

    return model.checked_weights(folder) if os.environ.get("DOCTOR_EMBEDDING_MODEL") else model.WEIGHTS


def _fused(
    words: Lexicon,
    bm25: dict[int, float],
    overlap: dict[int, float],
    cosines: dict[int, float] | None,
    k: int,
) -> Results:
    rankings = [sorted(bm25, key=lambda n: (-bm25[n], n))[:POOL]]
    if cosines is not None:
        rankings.append(sorted(cosines, key=lambda n: (-cosines[n], n))[:POOL])
    fused: dict[int, float] = {}
    for ranking in rankings:
        for place, number in enumerate(ranking):
            fused[number] = fused.get(number, 0.0) + (RANK_CONSTANT + 1) / (RANK_CONSTANT + 1 + place)
    found = Results()
    for number in sorted(fused, key=lambda n: (-fused[n], n)):
        cosine = None if cosines is None else cosines.get(number, 0.0)
        shared = overlap.get(number, 0.0)
        if len(found) < k and answers(cosine, shared):
            c = words.chunks[number]
            score = round(fused[number] / len(rankings), 4)
            shown = None if cosine is None else round(cosine, 4)
            found.append(
                Result(c.document, c.headings, score, c.text, c.cause, c.kind, shown, round(shared, 4))
            )
    return found


def answers(cosine: float | None, overlap: float) -> bool:
    """Whether a passage bears on the query at all."""
    if cosine is None:
        return overlap >= OVERLAP_ALONE
    if cosine >= COSINE_ALONE:
        return True
    return overlap >= (OVERLAP_FAIR if cosine >= COSINE_FAIR else OVERLAP_ALONE) and cosine >= COSINE_FAINT
