"""What the index holds, without loading a model or Chroma."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import documents, encoder, lexicon, model, store
from .build import collection_name
from .places import Sources, cache_folder


@dataclass(frozen=True, slots=True)
class Status:
    """`vectors` tells whether a vector index of the present content is built; `why` what is missing."""

    playbooks: int
    documents: list[str]
    chunks: int
    vectors: bool
    why: str
    cache: str
    cache_bytes: int
    server: str | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready mapping."""
        return asdict(self)


def status(sources: Sources | None = None, cache_dir: Path | None = None) -> Status:
    """Count what there is and tell whether the vectors are current."""
    sources, cache = sources or Sources(), cache_dir or cache_folder()
    words = lexicon.load(sources, cache)
    why = ""
    try:
        folder = model.model_folder()
        weights = model.WEIGHTS if not os.environ.get("DOCTOR_EMBEDDING_MODEL") else model.checked_weights(folder)
        if not (encoder.encoder_folder(cache, weights) / "agreement.json").is_file():
            why = "the query encoder is not exported yet"
        elif not store.server() and store.current(cache, collection_name(words.name, weights)) is None:
            why = "no vectors of the present content"
    except model.ModelUnusable as e:
        why = str(e)
    return Status(
        playbooks=sum(1 for kind, _ in sources.files() if kind == "playbook"),
        documents=documents.names(sources.documents),
        chunks=len(words.chunks),
        vectors=not why,
        why=why,
        cache=str(cache),
        cache_bytes=_size(cache),
        server=store.server(),
    )


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total
