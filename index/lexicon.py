"""Lexical search: BM25 scores computed once by bm25s and kept as one file of postings.

A query only adds up postings, so it needs neither numpy nor a model and answers a few milliseconds after
the process starts.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .chunks import Chunk
from .corpus import chunks, fingerprint
from .places import Sources, cache_folder
from .words import terms


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Chunks and the postings over them.

    `postings[term]` is `[chunk numbers, BM25 contributions]`, both in the order of chunks.
    """

    name: str
    chunks: list[Chunk]
    postings: dict[str, list[list[Any]]]

    def scores(self, query: str) -> tuple[dict[int, float], dict[int, float]]:
        """BM25 score and overlap of every chunk that shares a term with the query.

        The overlap is the share of the query's information (inverse document frequency) that the chunk
        has, from 0 to 1. A term that no chunk has counts in full: a question about other things stays low,
        and so does one whose only common term is one word (the prior is a third of a rare term).
        """
        wanted = list(dict.fromkeys(terms(query)))
        bm25: dict[int, float] = defaultdict(float)
        shared: dict[int, float] = defaultdict(float)
        total = math.log(1 + (len(self.chunks) + 0.5) / 0.5) / 3
        for term in wanted:
            numbers, contributions = self.postings.get(term, [[], []])
            weight = math.log(1 + (len(self.chunks) + 0.5) / (len(numbers) + 0.5))
            total += weight
            for number, contribution in zip(numbers, contributions, strict=True):
                bm25[number] += contribution
                shared[number] += weight
        return dict(bm25), {number: weight / total for number, weight in shared.items()}


def load(sources: Sources | None = None, cache: Path | None = None) -> Lexicon:
    """The lexicon of the sources as they are now: from the cache, or compiled and put there."""
    sources, cache = sources or Sources(), cache or cache_folder()
    name = fingerprint(sources)
    path = cache / "lexicon" / f"{name}.json"
    try:
        kept = json.loads(path.read_bytes())
        return Lexicon(name, [Chunk(**c) for c in kept["chunks"]], kept["postings"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there yet, or damaged
    made = compile_(chunks(sources), name)
    _publish(made, path)
    return made


def compile_(found: list[Chunk], name: str = "") -> Lexicon:
    """Postings of chunks, scored by bm25s (Lucene's variant of BM25)."""
    if not found:
        return Lexicon(name, [], {})
    import bm25s

    tokens = [terms(f"{c.document} {' '.join(c.headings)} {c.text} {c.extra}") for c in found]
    ranker = bm25s.BM25(method="lucene")
    ranker.index([t or ["-"] for t in tokens], show_progress=False, leave_progress=False)
    data, rows, starts = (ranker.scores[k] for k in ("data", "indices", "indptr"))
    postings = {}
    for term, column in ranker.vocab_dict.items():
        if not term:  # bm25s keeps a column-less entry for the empty token
            continue
        start, end = int(starts[column]), int(starts[column + 1])
        pairs = sorted(zip(rows[start:end].tolist(), data[start:end].tolist(), strict=True))
        if pairs:
            postings[term] = [[n for n, _ in pairs], [round(s, 4) for _, s in pairs]]
    return Lexicon(name, found, postings)


def _publish(lexicon: Lexicon, path: Path) -> None:
    """Write beside and rename; older versions go. A folder that cannot be written costs time, not answers."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"chunks": [asdict(c) for c in lexicon.chunks], "postings": lexicon.postings}
        with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as part:
            json.dump(kept, part, separators=(",", ":"))
        os.replace(part.name, path)  # noqa: PTH105
        older = sorted(path.parent.glob("*.json"), key=lambda p: p.stat().st_mtime)[:-4]
        for old in older:
            old.unlink(missing_ok=True)
    except OSError:
        return
