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
# own, or fair and borne out by shared words. Words alone must share more.
COSINE_ALONE = 0.48
COSINE_FAIR, OVERLAP_FAIR = 0.30, 0.32
OVERLAP_ALONE = 0.42


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
    return cosine >= COSINE_ALONE or (cosine >= COSINE_FAIR and overlap >= OVERLAP_FAIR)
