"""What is wrong with a sample of records, beyond what `reading.samples` asks: one function a question."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ..minhash import Signatures
from .rows import Row

Found = tuple[str, Any, Row]

LABELS = ("label", "labels", "target_label", "class", "class_id", "cls")
NEAR = 6000  # records compared for near duplicates
REPETITIVE, LEAST = 0.10, 500  # packed to less than a tenth; bytes of a text that is judged
RANDOM, RANDOM_LEAST = 0.72, 1000

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]|\x1b\[")
_HALF = re.compile("[\ud800-\udfff]")
_SCRIPTS = ("LATIN", "CJK", "CYRILLIC", "ARABIC", "HANGUL", "HIRAGANA", "KATAKANA", "DEVANAGARI", "HEBREW", "THAI",
            "GREEK")  # fmt: skip


def ratio(text: str) -> float:
    """Bytes of a text when packed by zlib, as a share of its own."""
    data = text[:50_000].encode("utf-8", "replace")
    return len(zlib.compress(data, 1)) / max(1, len(data))


def body(row: Row) -> str:
    """All text of a record in one piece."""
    return "\n".join(row.texts())


def controls(rows: Sequence[Row]) -> Iterator[Found]:
    """Control characters and terminal escapes inside texts."""
    damaged = [r for r in rows if any(_CONTROL.search(t[:20000]) for t in r.texts())]
    for r in damaged[:2]:
        yield "control_characters", len(damaged), r


def halves(rows: Sequence[Row]) -> Iterator[Found]:
    """Halves of surrogate pairs, which JSON carries and no tokenizer takes."""
    damaged = [r for r in rows if any(_HALF.search(t[:20000]) for t in r.texts())]
    for r in damaged[:2]:
        yield "encoding_damage", len(damaged), r


def copies(rows: Sequence[Row]) -> Iterator[Found]:
    """Records that nearly repeat another, by MinHash over words; exact copies are another question's."""
    texts = [(n, text) for n, r in enumerate(rows[:NEAR]) if len(text := body(r)) >= 60]
    if len(texts) < 10:
        return
    by_text: dict[str, int] = {}
    signatures = Signatures()
    for n, text in texts:
        if by_text.setdefault(text, n) == n:
            signatures.add(n, text)
    pairs = list(signatures.pairs())
    share = len(pairs) / len(by_text)
    if len(pairs) >= 2 and share >= 0.02:
        yield "near_duplicates", round(share, 3), rows[pairs[0][1]]
        for _, n, _ in pairs[1:3]:
            yield "near_duplicates", round(share, 3), rows[n]


def packing(rows: Sequence[Row]) -> Iterator[Found]:
    """Texts that pack far too well (the same over and over) or hardly at all (no language)."""
    repetitive: list[tuple[float, Row]] = []
    random: list[Row] = []
    judged = 0
    for r in rows:
        text = max(r.texts(), key=len, default="")[:50_000]
        data = text.encode("utf-8", "replace")
        if len(data) < LEAST:
            continue
        judged += 1
        share = ratio(text)
        if share < REPETITIVE:
            repetitive.append((round(share, 4), r))
        elif share > RANDOM and len(data) >= RANDOM_LEAST and text.isascii() and text.count(" ") < len(text) / 50:
            random.append(r)
    for share, r in sorted(repetitive, key=lambda pair: pair[0])[:3]:
        yield "repetitive", share, r
    for r in random[:2]:
        yield "random_text", len(random), r
    if repetitive and len(repetitive) >= 0.01 * judged:
        yield "repetitive_share", round(len(repetitive) / judged, 3), repetitive[0][1]


def classes(rows: Sequence[Row]) -> Iterator[Found]:
    """Labels: one only, one for nearly all, or in blocks as if they had been sorted."""
    for name in LABELS:
        labelled = [(v, r) for r in rows if isinstance(v := r.fields.get(name), int | str) and not isinstance(v, bool)]
        if len(labelled) < 20 or 2 * len(labelled) < len(rows):
            continue
        counts = Counter(str(v) for v, _ in labelled)
        if len(counts) > 0.2 * len(labelled):
            continue  # free text
        share = max(counts.values()) / len(labelled)
        if len(counts) == 1:
            yield "single_class", str(labelled[0][0]), labelled[0][1]
        elif share > 0.95:
            yield "class_imbalance", round(share, 3), labelled[0][1]
        else:
            changes = [n for n in range(1, len(labelled)) if str(labelled[n][0]) != str(labelled[n - 1][0])]
            by_chance = (1 - sum(c * c for c in counts.values()) / len(labelled) ** 2) * len(labelled)
            if len(changes) < 0.1 * by_chance and len(labelled) >= 40:
                yield "sorted_by_label", len(changes), labelled[changes[0]][1]


def scripts(rows: Sequence[Row]) -> Iterator[Found]:
    """Records in a script that nearly all others do not use."""
    kinds = [(k, r) for r in rows if (k := _script(body(r)[:2000]))]
    counts = Counter(k for k, _ in kinds)
    rare = [(k, r) for k, r in kinds if counts[k] <= 0.02 * len(kinds)]
    if len(kinds) >= 100 and rare:
        yield "other_script", f"{rare[0][0].lower()}: {len(rare)} of {len(kinds)}", rare[0][1]


def _script(text: str) -> str:
    """The script of most letters, looked at in every tenth character of longer texts."""
    counts: Counter[str] = Counter()
    for c in text[:: max(1, len(text) // 200)]:
        if c.isascii():
            counts["LATIN"] += c.isalpha()
        elif c.isalpha():
            name = unicodedata.name(c, "")
            counts[next((s for s in _SCRIPTS if name.startswith(s)), "")] += 1
    return counts.most_common(1)[0][0] if counts and max(counts.values()) >= 10 else ""


def numbers(rows: Sequence[Row]) -> Iterator[Found]:
    """Fields of numbers that are not finite in some record."""
    for r in rows:
        for name, value in r.fields.items():
            odd = _not_finite(value)
            if odd:
                yield "not_finite", f"{name}: {odd}", r
                break


def _not_finite(value: Any) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, list) and value and isinstance(value[0], float):
        return next((str(v) for v in value if isinstance(v, float) and (v != v or abs(v) == float("inf"))), "")
    return ""


def openings(rows: Sequence[Row], bos: int | None, eos: int | None) -> Iterator[Found]:
    """Token ids that begin with the same special token twice."""
    for r in rows:
        ids = r.fields.get("input_ids")
        if isinstance(ids, list) and len(ids) > 2 and bos is not None and bos != eos and ids[0] == ids[1] == bos:
            yield "bos_doubled", True, r
            return


def ranges(rows: Sequence[Row], vocabulary: int | None) -> Iterator[Found]:
    """Token ids that are negative (labels may be -100) or beyond the vocabulary."""
    for r in rows:
        for name in ("input_ids", "tokens", "token_ids", "ids"):
            ids = r.fields.get(name)
            if not (isinstance(ids, list) and ids and isinstance(ids[0], int) and all(isinstance(i, int) for i in ids)):
                continue
            if min(ids) < 0:
                yield "token_out_of_range", min(ids), r
            elif vocabulary and max(ids) >= vocabulary:
                yield "token_out_of_range", max(ids), r
