"""Saved batches: token ids with labels and masks, row by row, from torch and numpy files, JSON lines and prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...core.errors import ParseError
from ...core.types import Evidence
from ..run.files import Line, RunFile
from .dataset_files import Source, matches, sources
from .sampling import look
from .token_files import arrays, chunks
from .tokenizers import RunTokenizer

if TYPE_CHECKING:
    from ..run.workspace import Workspace


# ----------
# Printed tensors and statistics of data in text files: labels, token ids, lengths.


SPAN = 400  # lines of one printed tensor

_TENSOR = re.compile(
    r"""['"]?\b(labels?|input_ids|target_ids|loss_mask|completion_mask)['"]?\]?\s*[:=]\s*(?:tensor|array)?\(?\s*\["""
)
_PART = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[\[\]]|\.\.\.")
_STATISTIC = re.compile(
    r"(?i)\b(characters?|chars|tokens?|words)\b[^:=\n]{0,60}[:=]\s*(?:about|approx\.?|~|around|up to)?\s*"
    r"(\d[\d,._]*)\s*(k)?\b"
)
_ROWS = re.compile(
    r"(?i)^\s*(?:number of |num[_ ]|total )?(rows|samples|examples|records|documents)\s*[:=]\s*([\d][\d,._]*)\s*$"
)
_PER_TOKEN = {"c": 0.25, "t": 1.0, "w": 1.3}


@dataclass(frozen=True, slots=True)
class Dump:
    """A printed tensor.

    Attributes:
        name: as it is printed.
        line: where it starts.
        numbers: all of them, in order.
        width: of its rows where they are printed in brackets of their own and are of one length; else 0.
    """

    name: str
    line: Line
    numbers: list[float]
    width: int = 0

    @property
    def rows(self) -> list[list[float]]:
        """The numbers by row."""
        wide = self.width or len(self.numbers) or 1
        return [self.numbers[n : n + wide] for n in range(0, len(self.numbers), wide)]


def dumps(lines: list[Line]) -> Iterator[Dump]:
    """Printed tensors, in order. One that does not end within `SPAN` lines is given as far as it goes."""
    for number, line in enumerate(lines):
        text = line.text
        for m in _TENSOR.finditer(text):
            rows = _rows_at(lines, number, m.end() - 1)
            wide = {len(r) for r in rows}
            yield Dump(m[1], line, [n for r in rows for n in r], wide.pop() if len(rows) > 1 and len(wide) == 1 else 0)


def _rows_at(lines: list[Line], number: int, start: int) -> list[list[float]]:
    """Numbers up to the bracket that closes the one at `start`, by the innermost brackets they stand in; none where
    the middle was left out in printing."""
    depth = 0
    rows: list[list[float]] = [[]]
    for line in lines[number : number + SPAN]:
        for m in _PART.finditer(line.text, start):
            part = m[0]
            if part == "...":
                return []
            if part == "[":
                depth += 1
                rows.append([])
            elif part == "]":
                depth -= 1
                if depth == 0:
                    return [r for r in rows if r]
                rows.append([])
            else:
                rows[-1].append(float(part))
        start = 0
    return [r for r in rows if r]


def lengths(lines: list[Line]) -> Iterator[tuple[Line, int]]:
    """Lines that state a length of samples, with the tokens it comes to."""
    for line in lines:
        if m := _STATISTIC.search(line.text[:400]):
            value = float(re.sub(r"[,_]", "", m[2]).rstrip(".") or 0) * (1000 if m[3] else 1)
            yield line, round(value * _PER_TOKEN[m[1][0].lower()])


def rows(lines: list[Line]) -> Iterator[tuple[Line, int]]:
    """Lines that state a number of samples."""
    for line in lines:
        if m := _ROWS.match(line.text[:200]):
            yield line, int(float(re.sub(r"[,_]", "", m[2]).rstrip(".") or 0))


# ----------

IGNORED = -100  # label that the loss leaves out
ELEMENTS = 4 << 20  # of one tensor that are read
ROWS = 512  # of one batch
FILE = 1 << 30  # bytes of a saved batch
_STATES = (".pt", ".pth", ".npz", ".safetensors", ".bin", ".pkl")  # the last two hold much else
SMALL = 32 << 20  # bytes of records that are looked at unasked
_IDS = re.compile(rb"\b(?:input_ids|token_ids|target_ids|labels)\b['\"\])]*\s*[:=]\s*(?:tensor|array)?\(?\s*\[")
TEXT = 512 << 10  # bytes of a text that may hold a printed tensor

_NAMES = {
    **dict.fromkeys(("input_ids", "tokens", "token_ids", "inputs", "x"), "ids"),
    **dict.fromkeys(("labels", "label", "targets", "target_ids", "y"), "labels"),
    **dict.fromkeys(("attention_mask", "padding_mask"), "attention"),
    **dict.fromkeys(("loss_mask", "completion_mask", "response_mask", "assistant_masks"), "counted"),
    "position_ids": "positions",
}


@dataclass(frozen=True, slots=True)
class Sequence:
    """One row of a batch.

    Attributes:
        ids, labels, attention, counted, positions: as saved; None where there is none. Where only a loss mask was
            saved, `labels` are the ids with `IGNORED` in the places it leaves out.
        line: where it stands in a text file.
    """

    file: RunFile
    number: int
    ids: list[int]
    labels: list[int] | None = None
    attention: list[int] | None = None
    positions: list[int] | None = None
    line: Line | None = None
    batch: str = ""

    def shown(self, ws: Workspace, key: str, value: Any, text: str = "") -> Evidence:
        """Evidence that points at this row."""
        if self.line is not None:
            return ws.cite(self.file, self.line, f"batch.{key}", value)
        return ws.binary(self.file, f"{self.batch}row {self.number}", f"batch.{key}", value, text=text)


@dataclass(slots=True)
class Batch:
    """The rows of one file, and why some of it was not read."""

    file: RunFile
    rows: list[Sequence] = field(default_factory=list)
    unread: str = ""


def batches(ws: Workspace, path: str = "") -> list[Batch]:
    """Every saved batch of the run, or those in the files named."""
    out: list[Batch] = []
    for file in ws.files:
        if not matches(file.name, path) or file.good:
            continue
        base = file.name.rsplit("/", 1)[-1].lower()
        if base.endswith(_STATES if path else _STATES[:4]):
            if (path or any(w in base for w in ("batch", "sample", "input", "collat"))) and file.size <= FILE:
                out += _saved(ws, file)
        elif base.endswith((".txt", ".log", ".out")) and file.size <= TEXT and _IDS.search(ws.read(file, TEXT)):
            out += _printed(ws, file)
    for source in sources(ws, path):
        if path or _tokenised(ws, source):
            out += _records(ws, source)
    return [b for b in out if b.rows or b.unread]


def _tokenised(ws: Workspace, source: Source) -> bool:
    """Whether a file of records holds token ids and is small enough to be looked at unasked."""
    small = source.kind in ("jsonl", "json") and source.file.size <= SMALL
    return small and bool(_IDS.search(ws.read(source.file, 64 << 10)))


def _saved(ws: Workspace, file: RunFile) -> Iterator[Batch]:
    """Tensors of a saved state, grouped by what stands before their last name."""
    if file.name.lower().endswith(".npz"):
        yield _numpy(file)
        return
    from ..checkpoints.weights import state_of

    state = state_of(ws, file)
    groups: dict[str, dict[str, Any]] = {}
    for name, tensor in state.tensors.items():
        owner, _, last = name.removesuffix(".npy").rpartition(".")
        if (part := _NAMES.get(last.lower())) and len(tensor.shape) in (1, 2) and tensor.dtype in _WHOLE:
            groups.setdefault(owner, {}).setdefault(part, tensor)
    found = [Batch(file, list(_rows_of(ws, file, owner, parts))) for owner, parts in groups.items() if "ids" in parts]
    if not found and not state.readable:
        said = state.problems[0].text if state.problems else "its structure is not understood"
        found = [Batch(file, [], said)]
    yield from found


def _numpy(file: RunFile) -> Batch:
    """Arrays of an npz."""
    tables: dict[str, list[list[int]]] = {}
    try:
        for tokens in arrays(file):
            part = _NAMES.get(tokens.member.removesuffix(".npy").lower())
            if part and len(tokens.shape) in (1, 2) and tokens.count <= ELEMENTS:
                flat = [int(v) for _, ids in chunks(tokens) for v in ids]
                width = max(1, tokens.shape[-1])
                tables[part] = [flat[n : n + width] for n in range(0, len(flat), width)]
    except ParseError as e:
        return Batch(file, [], str(e))
    return Batch(file, list(_joined(file, "", tables)))


_WHOLE = ("int64", "int32", "int16", "uint8", "int8", "bool", "uint16", "uint32")


def _rows_of(ws: Workspace, file: RunFile, owner: str, parts: dict[str, Any]) -> Iterator[Sequence]:
    yield from _joined(file, owner, {part: _table(ws, tensor) for part, tensor in parts.items()})


def _joined(file: RunFile, owner: str, tables: dict[str, list[list[int]]]) -> Iterator[Sequence]:
    for n, row in enumerate(tables.get("ids", [])[:ROWS]):
        beside = {p: t[n] for p, t in tables.items() if len(t) > n and len(t[n]) == len(row)}
        yield _sequence(file, n, row, beside, None, f"{owner}, " if owner else "")


def _table(ws: Workspace, tensor: Any) -> list[list[int]]:
    from ..checkpoints.numbers import chunks as values_of

    flat: list[int] = []
    for part in values_of(ws, tensor):
        flat += [int(v) for v in part]
        if len(flat) >= ELEMENTS:
            break
    width = tensor.shape[-1] if tensor.shape else 1
    if len(tensor.shape) < 2:
        return [flat]
    return [flat[n : n + width] for n in range(0, len(flat) - width + 1, max(1, width))]


def _sequence(
    file: RunFile, number: int, ids: list[int], beside: dict[str, list[int]], line: Line | None, batch: str = ""
) -> Sequence:
    labels = beside.get("labels")
    counted = beside.get("counted")
    if labels is None and counted is not None:
        labels = [i if c else IGNORED for i, c in zip(ids, counted, strict=True)]
    return Sequence(file, number, ids, labels, beside.get("attention"), beside.get("positions"), line, batch)


def _records(ws: Workspace, source: Source) -> Iterator[Batch]:
    """Records with token ids: a sequence each, or a whole batch in lists of lists."""
    looked = look(ws, source, ROWS, 8 << 20, 10.0)
    rows: list[Sequence] = []
    for r in looked.rows:
        parts = {p: v for k, v in r.fields.items() if (p := _NAMES.get(k.lower())) and isinstance(v, list) and v}
        ids = parts.get("ids")
        if not ids:
            continue
        line = None if r.member else r.line
        batch = f"{r.member}, " if r.member else ""
        nested = isinstance(ids[0], list)
        for n in range(len(ids) if nested else 1):
            taken = {p: (v[n] if nested and len(v) > n else v) for p, v in parts.items()}
            one = {p: v for p, v in taken.items() if _whole(v) and len(v) == len(taken["ids"])}
            if "ids" in one:
                rows.append(_sequence(source.file, n if nested else r.number, one["ids"], one, line, batch))
    unread = "" if looked.every == 1 and not looked.stopped else f"{len(rows)} of {looked.seen} records were read"
    yield Batch(source.file, rows[:ROWS], unread if rows else "")


def _whole(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, int) for v in value)


def _printed(ws: Workspace, file: RunFile) -> Iterator[Batch]:
    """Tensors as they are printed, ids and what follows them; only where they were printed whole."""
    group: dict[str, tuple[list[list[int]], Line]] = {}
    rows: list[Sequence] = []
    for dump in [*dumps(list(ws.lines(file))), None]:
        part = _NAMES.get(dump.name) if dump else "ids"
        if part == "ids" and "ids" in group:
            table, line = group["ids"]
            alike = {p: v for p, (v, _) in group.items() if [*map(len, v)] == [*map(len, table)]}
            for n, ids in enumerate(table):
                rows.append(_sequence(file, len(rows), ids, {p: v[n] for p, v in alike.items()}, line))
            group = {}
        if dump and part and dump.numbers and all(abs(n) < 1e15 for n in dump.numbers):
            group.setdefault(part, ([[int(n) for n in row] for row in dump.rows], dump.line))
    yield Batch(file, rows[:ROWS])


# ----------
# What the loss mask of a row covers: prompt, answer, padding, end; and whether labels stand where they should.

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

    tokenizer: RunTokenizer | None
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
