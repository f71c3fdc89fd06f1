"""How long the records are, in tokens of the run's tokenizer or by estimate, against the length the run allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..records import tokens as estimate
from .rows import Row
from .tokenizer import Tokenizer

CALIBRATION = 200  # records whose tokens are counted to learn the ratio
EXACT = 400  # more, near and over the limit


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of every record. `exact` where the longest were counted by the run's tokenizer."""

    tokens: list[int]
    exact: bool
    how: str

    def quantile(self, share: float) -> int:
        """The length that `share` of the records do not exceed."""
        return sorted(self.tokens)[min(len(self.tokens) - 1, int(share * len(self.tokens)))] if self.tokens else 0


def lengths(rows: Sequence[Row], tokenizer: Tokenizer | None, limit: int | None) -> Lengths:
    """Token counts: of lists of ids their length, of text counted or estimated."""
    rough = [_ids(r) or sum(estimate(t) for t in r.texts()) for r in rows]
    texts = [n for n, r in enumerate(rows) if not _ids(r)]
    if tokenizer is None or not tokenizer.counts or not texts:
        why = "counted ids" if not texts else "an estimate of four characters a token"
        return Lengths(rough, not texts, why)
    some = texts[:: max(1, len(texts) // CALIBRATION)][:CALIBRATION]
    counted = dict(zip(some, tokenizer.lengths(["\n".join(rows[n].texts()) for n in some]), strict=True))
    factor = sum(counted.values()) / max(1, sum(rough[n] for n in some))
    out = [counted.get(n, v if _ids(rows[n]) else round(v * factor)) for n, v in enumerate(rough)]
    near = sorted((n for n in texts if n not in counted), key=lambda n: -out[n])
    if limit:
        near = [n for n in near if out[n] > 0.6 * limit]
    near = near[:EXACT]
    for n, value in zip(near, tokenizer.lengths(["\n".join(rows[n].texts()) for n in near]), strict=True):
        out[n] = value
    return Lengths(out, True, f"tokens of {tokenizer.file.name}")


def _ids(row: Row) -> int:
    ids = row.fields.get("input_ids")
    return len(ids) if isinstance(ids, list) else 0
