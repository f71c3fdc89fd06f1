"""What the loss mask of a row covers: prompt, answer, padding, end; and whether labels stand where they should."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .batches import IGNORED, Sequence
from .tokenizer import Tokenizer

MARKER = 16  # ids before a stretch that may name whose turn it is
ENOUGH = 8  # labelled places from which an alignment can be told
PROMPT = re.compile(
    r"<\|im_start\|>\s*(?:user|system)|<\|start_header_id\|>\s*(?:user|system)|<start_of_turn>user|\[INST\]"
    r"|<\|user\|>|### (?:Instruction|Input|Human|User)\b|(?m:^\s*(?:Human|User|USER|Question): )"
)
TOOL = re.compile(
    r"<\|im_start\|>\s*(?:tool|observation|ipython|function)|<tool_response>|<\|observation\|>"
    r"|<\|start_header_id\|>\s*(?:ipython|tool)"
)
ANSWER = re.compile(
    r"<\|im_start\|>\s*assistant|<\|start_header_id\|>\s*assistant|<start_of_turn>model|\[/INST\]|<\|assistant\|>"
    r"|### (?:Response|Assistant|Output)\b|(?m:^\s*(?:Assistant|ASSISTANT|Answer): ?)"
)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known about the ids: the tokenizer, the vocabulary's size and the ids of special tokens."""

    tokenizer: Tokenizer | None
    vocabulary: int | None
    bos: int | None
    eos: int | None
    pad: int | None
    positions: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a row that the loss counts, or does not, or that is padding."""

    kind: str  # counted, masked, padding
    start: int
    end: int


def padding_of(row: Sequence, known: Knowledge) -> tuple[int, int]:
    """Start and end of what is not padding: by the attention mask, else by runs of the pad token at the ends."""
    n = len(row.ids)
    if row.attention is not None and any(row.attention):
        return row.attention.index(1) if 1 in row.attention else 0, n - row.attention[::-1].index(1)
    if known.pad is None:
        return 0, n
    first, last = 0, n
    while last > 0 and row.ids[last - 1] == known.pad:
        last -= 1
    while first < last and row.ids[first] == known.pad:
        first += 1
    if known.pad == known.eos and last < n:
        last += 1  # the first of them ends the text
    return first, last


def spans(row: Sequence, known: Knowledge) -> list[Span]:
    """The row cut into stretches, in order."""
    first, last = padding_of(row, known)
    out: list[Span] = []
    for n in range(len(row.ids)):
        label = row.labels[n] if row.labels is not None else row.ids[n]
        kind = "counted" if label != IGNORED else "masked" if first <= n < last else "padding"
        if out and out[-1].kind == kind:
            out[-1] = Span(kind, out[-1].start, n + 1)
        else:
            out.append(Span(kind, n, n + 1))
    return out


def alignment(row: Sequence) -> tuple[float, float, int] | None:
    """Share of labels equal to the id in their own place and in the next one, and how many labels there are."""
    if row.labels is None:
        return None
    at = [n for n in range(len(row.ids) - 1) if row.labels[n] != IGNORED]
    if len(at) < ENOUGH:
        return None
    same = sum(row.labels[n] == row.ids[n] for n in at) / len(at)
    following = sum(row.labels[n] == row.ids[n + 1] for n in at) / len(at)
    return round(same, 3), round(following, 3), len(at)


def faults(row: Sequence, known: Knowledge) -> Iterator[tuple[str, Any, str]]:
    """What is wrong with one row: key below `batch.`, value, words."""
    yield from _ranges(row, known)
    yield from _attention(row, known)
    if row.labels is None:
        return
    if all(v == IGNORED for v in row.labels):
        yield "all_masked", row.number, f"all {len(row.labels)} labels are {IGNORED}: the row teaches nothing"
        return
    first, last = padding_of(row, known)
    counted = [n for n in [*range(first), *range(last, len(row.ids))] if row.labels[n] != IGNORED]
    if counted and (len(counted) > 1 or known.pad != known.eos):
        yield "padding_counted", len(counted), f"{len(counted)} places of padding count in the loss"
    yield from _ends(row, known, last)
    yield from _turns(row, known)


def _ranges(row: Sequence, known: Knowledge) -> Iterator[tuple[str, Any, str]]:
    for name, values in (("ids", row.ids), ("labels", [v for v in row.labels or [] if v != IGNORED])):
        if values and min(values) < 0:
            yield "out_of_range", min(values), f"{name}: {min(values)} is negative"
        elif values and known.vocabulary and max(values) >= known.vocabulary:
            yield "out_of_range", max(values), f"{name}: {max(values)} in a vocabulary of {known.vocabulary}"
    if row.positions:
        most = max(row.positions)
        if min(row.positions) < 0 or (known.positions and most >= known.positions):
            yield "position_out_of_range", most, f"position ids from {min(row.positions)} to {most}"


def _attention(row: Sequence, known: Knowledge) -> Iterator[tuple[str, Any, str]]:
    mask = row.attention
    if mask is None or set(mask) - {0, 1}:
        return
    if not any(mask):
        yield "attention_mismatch", len(mask), "the attention mask is all zero"
        return
    first, last = mask.index(1), len(mask) - mask[::-1].index(1)
    holes = [n for n in range(first, last) if not mask[n]]
    if holes:
        yield "attention_mismatch", len(holes), f"{len(holes)} places inside the text are not attended to"
    if known.pad is not None and known.pad != known.eos:
        attended = sum(1 for i, m in zip(row.ids, mask, strict=True) if m and i == known.pad)
        hidden = sum(1 for i, m in zip(row.ids, mask, strict=True) if not m and i != known.pad)
        if attended:
            yield "attention_mismatch", attended, f"{attended} pad tokens are attended to"
        elif hidden:
            yield "attention_mismatch", hidden, f"{hidden} tokens that are no padding are not attended to"


def _ends(row: Sequence, known: Knowledge, last: int) -> Iterator[tuple[str, Any, str]]:
    labels = row.labels or []
    if known.bos is not None and known.bos != known.eos and len(row.ids) > 2:
        text = [i for i in row.ids if i != known.pad or known.pad in (known.bos, known.eos)]
        if text[:2] == [known.bos, known.bos]:
            yield "bos_doubled", row.number, "two beginning tokens"
    if known.eos is None or not last:
        return
    at = [n for n in range(last) if row.ids[n] == known.eos]
    if not at:
        if last < len(row.ids):  # padded, so it was not cut at the length
            yield "eos_missing", row.number, "no end token before the padding"
    elif all(labels[n] == IGNORED for n in at) and (following := alignment(row)) and following[0] > 0.5:
        yield "eos_masked", row.number, "the end token never counts in the loss: stopping is not learned"


def _turns(row: Sequence, known: Knowledge) -> Iterator[tuple[str, Any, str]]:
    """Turns of a conversation against the mask."""
    if known.tokenizer is None:
        return
    parts = spans(row, known)
    if not any(s.kind == "masked" for s in parts):
        text = known.tokenizer.decode(row.ids)
        if PROMPT.search(text) and ANSWER.search(text):
            yield "prompt_counted", row.number, "nothing but padding is masked: the prompt counts in the loss"
        return
    said: set[str] = set()
    for span in parts:
        before = known.tokenizer.decode(row.ids[max(0, span.start - MARKER) : span.start])
        text = known.tokenizer.decode(row.ids[span.start : span.end])
        if span.kind == "counted" and (m := TOOL.search(text)) and len(text[m.end() :].strip()) > 8:
            key, words = "tool_counted", f"counted in the loss: {text[m.start() : m.start() + 120]!r}"
        elif span.kind == "counted" and (m := PROMPT.search(text)) and len(text[m.end() :].strip()) > 8:
            key, words = "prompt_counted", f"counted in the loss: {text[m.start() : m.start() + 120]!r}"
        elif span.kind == "masked" and (rest := _answer(before, text)):
            key, words = "answer_masked", f"not counted in the loss: {rest[:120]!r}"
        else:
            continue
        if key not in said:
            said.add(key)
            yield key, row.number, words


def _answer(before: str, text: str) -> str:
    """The last answer that begins within a stretch or right before it; empty where there is none to speak of."""
    m = _last(ANSWER, before + text)
    if m is None or m.end() < len(before.rstrip()):
        return ""
    rest = PROMPT.split((before + text)[m.end() :])[0].strip()
    return rest if len(rest) > 20 else ""


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last place where it matches: earlier answers belong to the history."""
    return next(iter([*pattern.finditer(text)][::-1]), None)
