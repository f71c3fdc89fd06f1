"""Train the reader (`index/reader`) on the written cases, and measure it on those of an author that it never saw.

    python -m traindoctor.evals.reader.train             # trains on all but the held-out author's, writes the model
    python -m traindoctor.evals.reader.train --measure   # what the model in place makes of the held-out cases

One case is a line of JSON: what a person asks, lines that a log would show, a stretch of config or code, and the cause.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ...index import reader

CASES = Path(__file__).resolve().parents[1] / "cases"
HELD_OUT = "held-out.jsonl"
STRENGTH = 20.0  # inverse of the pull towards zero
ROUNDS = 60
FEWEST = 2  # cases that must have a feature


@dataclass(frozen=True, slots=True)
class Case:
    """A written case."""

    cause: str
    text: str


def cases(held_out: bool = False) -> list[Case]:
    """The cases of all authors but the one held out, or of that one; in a fixed order."""
    files = [p for p in sorted(CASES.glob("*.jsonl")) if (p.name == HELD_OUT) == held_out]
    rows = [json.loads(line) for p in files for line in p.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [Case(r["cause"], "\n".join([r["question"], *r["lines"], r["code"]])) for r in rows]


def trained(known: Sequence[Case]) -> reader.Model:
    """A model of cases; the same ones give the same model."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    found = [reader.counted(c.text) for c in known]
    indptr = np.cumsum([0, *(len(f) for f in found)])
    columns = np.array([b for f in found for b in f])
    values = np.array([v for f in found for v in f.values()], dtype=np.float64)
    counts = csr_matrix((values, columns, indptr), shape=(len(known), reader.BUCKETS))
    told = np.bincount(columns, minlength=reader.BUCKETS)
    kept = np.flatnonzero(told >= FEWEST)
    idf = np.log((1 + len(known)) / (1 + told[kept])) + 1
    scaled = counts[:, kept].multiply(idf).tocsr()
    norms = np.sqrt(np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel())
    scaled = scaled.multiply(1 / np.maximum(norms, 1e-9)[:, None]).tocsr()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is stopped before it has settled
        fit = LogisticRegression(C=STRENGTH, max_iter=ROUNDS).fit(scaled, [c.cause for c in known])
    scale = np.abs(fit.coef_).max(axis=1) / 127
    rows = np.full(reader.BUCKETS, -1, dtype=np.int32)
    rows[kept] = np.arange(len(kept), dtype=np.int32)
    weights = np.ascontiguousarray(np.round(fit.coef_ / scale[:, None]).T.astype(np.int8))
    return reader.Model(
        tuple(map(str, fit.classes_)), rows, idf.astype(np.float32), weights, scale.astype(np.float32),
        fit.intercept_.astype(np.float32),
    )  # fmt: skip


def measured(model: reader.Model, asked: Iterable[Case]) -> dict[str, tuple[int, int, int]]:
    """By family: cases, how often their cause is named first, and among the first three."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for case in asked:
        said = model.log_probabilities(case.text)
        best = sorted(said, key=lambda c: -said[c])[:3]
        row = found[case.cause.partition(".")[0]]
        row[0] += 1
        row[1] += case.cause == best[0]
        row[2] += case.cause in best
    return {family: (row[0], row[1], row[2]) for family, row in sorted(found.items())}


def main() -> None:
    """Train or measure, and print a table."""
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--measure", action="store_true", help="train nothing; measure the model in place")
    if parser.parse_args().measure:
        model = reader.load()
    else:
        model = trained(cases())
        reader.save(model)
    table = measured(model, cases(held_out=True))
    every = [sum(row[i] for row in table.values()) for i in range(3)]
    print(f"{'family':10} cases  first  first three")  # noqa: T201
    for family, (count, first, three) in [*table.items(), ("all", tuple(every))]:
        print(f"{family:10} {count:5}  {first / max(count, 1):.2f}   {three / max(count, 1):.2f}")  # noqa: T201
    print(f"{reader.MODEL.stat().st_size / 1e6:.1f} MB, {len(model.causes)} causes, {len(model.idf)} features")  # noqa: T201


if __name__ == "__main__":
    main()
