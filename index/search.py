"""Hybrid search: words and meaning in one score; a question that nothing bears on gets no answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from . import build as building
from . import encoder, lexicon, model, store
from .deadline import Stopped, Work
from .lexicon import Lexicon
from .places import Sources, cache_folder

Ranking = Literal["both", "words", "vectors"]  # `vectors` alone is there to be measured

DEADLINE = 5.0  # seconds for the vectors; after that, words alone answer
NEAREST = 400  # vectors asked for: a passage with the right words must not lack its cosine
MEANING = 1.5  # weight of the cosine beside the words' one; best of 14 ways to fuse on `evals/questions.yaml`

# Whether a question is answered at all, calibrated on `calibration` of `evals/questions.yaml`: the best cosine and the
# best overlap of any passages together; where only one kind is asked, that one.
BOTH, COSINE_LEAST = 0.80, 0.34
COSINE_ALONE, OVERLAP_ALONE = 0.48, 0.48
COSINE_SHOWN, OVERLAP_SHOWN = 0.25, 0.30  # of a passage of an answered question: either


@dataclass(frozen=True, slots=True)
class Result:
    """A passage that bears on the query.

    Attributes:
        score: words and meaning together, at most 1.
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
    by: Ranking = "both",
) -> Results:
    """Passages that answer a query, best first; none when nothing bears on it.

    Vectors are used where an index is built and answers within five seconds; otherwise words alone answer and
    `degraded` says why. A broken index is moved aside, so that the next `build` makes a new one.
    """
    sources, cache = sources or Sources(), cache_dir or cache_folder()
    asked, why = None, ""
    if by != "words":
        asked, why = _ask_vectors(query, cache, sources)
    words = _lexicon(sources, cache)
    bm25, overlap = words.scores(query) if by != "vectors" else ({}, {})
    cosines: dict[int, float] | None = None
    if asked is not None:
        cosines, why = asked.answer()
        if cosines is not None and any(number >= len(words.chunks) for number in cosines):
            cosines, why = None, "the index changed while it was read"
    found = _fused(words, bm25, overlap, cosines, k)
    found.degraded = why
    return found


def lexical(query: str, k: int = 5, *, cache_dir: Path | None = None, sources: Sources | None = None) -> Results:
    """The same by words alone: loads neither Chroma nor a model, nor numpy once the lexicon is cached."""
    return search(query, k=k, cache_dir=cache_dir, sources=sources, by="words")


def bound(cause: str, *, cache_dir: Path | None = None, sources: Sources | None = None) -> list[Result]:
    """The first passage of each of the user's documents whose front matter binds it to a cause."""
    found: dict[str, Result] = {}
    for c in _lexicon(sources or Sources(), cache_dir or cache_folder()).chunks:
        if c.kind == "document" and c.cause == cause:
            found.setdefault(c.document, Result(c.document, c.headings, 1.0, c.text, c.cause, c.kind, None, 0.0))
    return list(found.values())


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
        return store.nearest(self.version, store.server(), vector, NEAREST)

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
    found = Results()
    if not is_answered(cosines, overlap):
        return found
    top = max(bm25.values(), default=1.0) or 1.0
    lexical_ = {n: (score / top + overlap.get(n, 0.0)) / 2 for n, score in bm25.items()}
    scores = {n: _together(lexical_.get(n, 0.0), cosines, n) for n in {*lexical_, *(cosines or ())}}
    for number in sorted(scores, key=lambda n: (-scores[n], n)):
        cosine = None if cosines is None else cosines.get(number, 0.0)
        shared = overlap.get(number, 0.0)
        if (cosine or 0.0) >= COSINE_SHOWN or shared >= OVERLAP_SHOWN:
            c = words.chunks[number]
            shown = None if cosine is None else round(cosine, 4)
            score = round(scores[number], 4)
            found.append(Result(c.document, c.headings, score, c.text, c.cause, c.kind, shown, round(shared, 4)))
        if len(found) == k:
            break
    return found


def _together(lexical_: float, cosines: dict[int, float] | None, number: int) -> float:
    if cosines is None:
        return lexical_
    return (lexical_ + MEANING * max(0.0, cosines.get(number, 0.0))) / (1 + MEANING)


def is_answered(cosines: dict[int, float] | None, overlap: dict[int, float]) -> bool:
    """Whether any passage bears on the question: a high cosine and many shared words need not be the same one's."""
    near = max(cosines.values(), default=0.0) if cosines is not None else 0.0
    shared = max(overlap.values(), default=0.0)
    if cosines is None:
        return shared >= OVERLAP_ALONE
    if not overlap:
        return near >= COSINE_ALONE
    return near + shared >= BOTH and near >= COSINE_LEAST
