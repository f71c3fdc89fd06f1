"""Building the index: lexicon, query encoder, vectors. One builder at a time; a current one is left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import encoder, lexicon, model, store
from .deadline import Stopped, Work
from .places import Sources, cache_folder

LOCK_SECONDS = 600.0
STORE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Built:
    """What a build made. `why` tells why there are no vectors, when there are none."""

    chunks: int
    documents: int
    vectors: bool
    agreement: float | None = None
    why: str = ""


def _silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def collection_name(content: str, weights: str) -> str:
    """Name of the vectors of this content under these weights."""
    return f"doctor-{content}-{weights[:8]}"


def build(sources: Sources | None = None, cache_dir: Path | None = None, progress: model.Progress = _silent) -> Built:
    """Bring the index up to date.

    Args:
        progress: called as `progress(stage, done, total)`.

    Returns:
        What there is now. A model or store that fails costs the vectors, not the build: words remain.
    """
    sources, cache = sources or Sources(), cache_dir or cache_folder()
    progress("reading", 0, 1)
    words = lexicon.load(sources, cache)
    progress("reading", 1, 1)
    counted = (len(words.chunks), len({c.document for c in words.chunks}))
    try:
        from filelock import FileLock, Timeout

        cache.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(cache / "build.lock", timeout=LOCK_SECONDS):
                cosine = _vectors(words, cache, progress)
        except Timeout:
            return Built(*counted, False, None, "another process has been building for ten minutes")
    except (model.ModelUnusable, store.StoreBroken, Stopped) as e:
        return Built(*counted, False, None, str(e))
    except OSError as e:
        return Built(*counted, False, None, f"cannot write the cache: {e}")
    return Built(*counted, True, cosine)


def _vectors(words: lexicon.Lexicon, cache: Path, progress: model.Progress) -> float:
    """Vectors of the chunks in Chroma, unless they are there. Returns the encoder's agreement."""
    folder = model.model_folder()
    weights = model.checked_weights(folder)
    cosine = encoder.export(cache, weights, progress)
    name = collection_name(words.name, weights)
    url = store.server()
    if url is None and store.current(cache, name) is not None:
        return cosine
    kept = cache / "vectors" / f"{weights[:16]}.npz"
    vectors = model.embed_documents([c.embedded for c in words.chunks], folder, progress, kept)
    progress("storing", 0, 1)
    if url is None:
        Work(store.build, cache, name, vectors).result(STORE_SECONDS)
    else:
        Work(store.build_on_server, url, name, vectors).result(STORE_SECONDS)
    progress("storing", 1, 1)
    return cosine
