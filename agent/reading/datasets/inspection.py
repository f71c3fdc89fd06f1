"""All questions to a dataset, file by file: what was found, with rows that show it, and what was not read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...core import deadline
from ...core.errors import ParseError
from ...core.types import Evidence
from ..run.files import Line, RunFile
from ..run.lines import beginnings
from ..run.records import RECORDS, Record, records
from ..settings.settings import read_settings
from . import record_questions, samples
from .dataset_files import Fault, Limits, Row, Source, cited, of_the_run, told
from .record_questions import Lengths, lengths
from .sampling import Look
from .token_files import TokenFile, arrays, flat, look_at_tokens, megatron
from .tokenizers import RunTokenizer

if TYPE_CHECKING:
    from ..run.workspace import Workspace

DAMAGE = ("encoding_damage", "control_characters")
SEEN = 40  # rows that are looked at for text
WORDS = 12  # letters of one field from which on it is a text with a length in tokens
TRACE = 0.002  # share of records below which damaged characters are a fact about real text, not a finding
EACH = 3  # rows shown of one key in one file
TOTAL = 12  # of one key in all files
QUIET = frozenset({
    "records", "tool_turns", "sampled", "other_script", "sorted_by_label", "repetitive", "tokens",
    "token_range", "repeated_share", "not_read", "odd_characters",
})  # fmt: skip


# Found over all records at once: their value is a share or a number of records, so that counting them says nothing.
TOGETHER = frozenset({
    "near_duplicates", "duplicates", "encoding_damage", "control_characters", "random_text", "repetitive_share",
    "over_limit_share", "class_imbalance", "role_order", "length_limited",
})  # fmt: skip


@dataclass(slots=True)
class Findings:
    """Evidence by key with exact counts; `unread` says what was not looked at."""

    evidence: list[Evidence] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    unread: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, key: str, evidence: Evidence | None, count: int = 1) -> None:
        """Count a finding; keep its evidence while there is room."""
        self.counts[key] += count
        if evidence is not None and sum(e.key == evidence.key for e in self.evidence) < TOTAL:
            self.evidence.append(evidence)

    def said(self, key: str) -> str:
        """A key with its count, or with its value where that says how many."""
        value = next((e.value for e in self.evidence if e.key == f"data.{key}"), None)
        return f"{key} {value}" if key in TOGETHER and value is not None else f"{key} ({self.counts[key]})"

    @property
    def telling(self) -> list[str]:
        """Keys that are findings rather than facts, in the order they came."""
        return [key for key in self.counts if key not in QUIET]


def inspect_rows(ws: Workspace, looked: Look, limits: Limits, tokenizer: RunTokenizer | None, out: Findings) -> None:
    """Ask every question about one file of records; what a policy answered in training is no data of it."""
    rows, file = looked.rows, looked.source.file
    if any(map(_is_rollout, rows[:EACH])):
        return
    if rows:
        out.add("records", cited(ws, rows[0], "data.records", looked.seen, f"{looked.seen} records"))
    if not looked.whole:
        said = f"{file.name}: {len(rows)} of {looked.seen} records looked at"
        out.unread.append(f"{said}; {looked.stopped}" if looked.stopped else said)
    per_kind: Counter[str] = Counter()
    for fault in looked.faults:
        per_kind[fault.kind] += 1
        out.add(fault.kind, told(ws, fault) if per_kind[fault.kind] <= EACH else None, 0)
    for kind, count in looked.counts.items():
        out.counts[kind] += count
    for line in looked.undecodable:
        out.add("encoding_damage", ws.cite(file, line, "data.encoding_damage", looked.undecoded), 0)
    out.counts["encoding_damage"] += looked.undecoded
    out.counts += Counter()  # without the zeros
    shown: Counter[str] = Counter()
    for key, value, row in _found(rows, limits, tokenizer):
        if key in DAMAGE and value < TRACE * len(rows):
            key = "odd_characters"
        shown[key] += 1
        assert isinstance(row, Row)
        out.add(key, cited(ws, row, f"data.{key}", value) if shown[key] <= EACH else None)
    _repeats(ws, looked, shown, out)
    _lengths(ws, looked, lengths(rows, tokenizer, limits.tokens), limits.tokens, out)


def _found(rows: list[Row], limits: Limits, tokenizer: RunTokenizer | None) -> Iterator[tuple[str, Any, Record]]:
    found: list[Record] = list(rows)
    vocabulary = limits.vocabulary or (tokenizer.size if tokenizer else None)
    special = tokenizer.special if tokenizer else {}
    bos, eos = limits.bos, limits.eos
    for asked in (
        lambda: samples.modalities(found),
        lambda: samples.empties(found),
        lambda: samples.schemas(found),
        lambda: samples.damage(found),
        lambda: samples.repeats(found),
        lambda: samples.ranges(found, limits.classes, vocabulary),
        lambda: samples.cut_short(found, limits.stops),
        lambda: samples.openings(found),
        lambda: samples.unmarked(found, bos, eos),
        lambda: samples.turns(found),
        lambda: samples.scores(found),
        lambda: record_questions.openings(rows, bos if bos is not None else special.get("bos"), special.get("eos")),
        lambda: record_questions.ranges(rows, vocabulary),
        lambda: record_questions.numbers(rows),
        lambda: record_questions.controls(rows),
        lambda: record_questions.halves(rows),
        lambda: record_questions.packing(rows),
        lambda: record_questions.classes(rows),
        lambda: record_questions.scripts(rows),
        lambda: record_questions.copies(rows),
    ):
        deadline.check()
        yield from asked()


def _repeats(ws: Workspace, looked: Look, shown: Counter[str], out: Findings) -> None:
    """Lines of the whole file that occurred before."""
    if not looked.again or looked.repeated is None:
        return
    line, share = looked.again[0], round(looked.repeated, 4)
    out.add("repeated_share", ws.cite(looked.source.file, line, "data.repeated_share", share))
    if share >= 0.1 and looked.seen >= 10 and not shown["duplicates"]:
        for line in looked.again:
            out.add("duplicates", ws.cite(looked.source.file, line, "data.duplicates", round(share, 3)))


def _is_rollout(row: Row) -> bool:
    """Whether a row is what a policy answered and what it got for it."""
    return bool(row.completion) and any(name.startswith("reward") for name in row.fields)


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text[:2000]))


def _lengths(ws: Workspace, looked: Look, found: Lengths, limit: int | None, out: Findings) -> None:
    rows, counts = looked.rows, found.tokens
    if not any(_letters(text) >= WORDS for row in rows[:SEEN] for text in row.texts()):
        return  # numbers and short labels are not read by a tokenizer
    order = sorted(range(len(rows)), key=lambda n: -counts[n])
    longest, median, high = counts[order[0]], found.quantile(0.5), found.quantile(0.95)
    out.notes.append(
        f"{looked.source.file.name}: length median {median}, 95 % up to {high}, longest {longest} ({found.how})"
    )
    over = [n for n in order if limit and counts[n] > limit * (1 if found.exact else 1.15)]
    for n in over[:2]:
        out.add("long_records", cited(ws, rows[n], "data.long_records", counts[n]), 0)
    if over:
        out.counts["long_records"] += len(over)
        share = round(len(over) / len(rows), 4)
        out.add("over_limit_share", cited(ws, rows[over[0]], "data.over_limit_share", share))
        out.notes.append(f"{looked.source.file.name}: {len(over)} of {len(rows)} records exceed {limit} tokens")
    if len(rows) >= 50 and longest >= max(2000, 20 * high):
        out.add("length_outlier", cited(ws, rows[order[0]], "data.length_outlier", longest))


def inspect_tokens(
    ws: Workspace, source: Source, limits: Limits, tokenizer: RunTokenizer | None, out: Findings
) -> None:
    """Ask every question about a file of token ids."""
    vocabulary = limits.vocabulary or (tokenizer.size if tokenizer else None)
    eos = limits.eos if limits.eos is not None else tokenizer.special.get("eos") if tokenizer else None
    file = source.file
    try:
        for tokens in _token_files(ws, source, vocabulary):
            if len(tokens.shape) > 2 or tokens.dtype in ("u1", "|u1", "|b1"):
                continue  # pictures, masks
            for fault in tokens.faults:
                out.add(fault.kind, told(ws, fault))
            found = look_at_tokens(tokens, vocabulary, eos)
            said = f"{found.read} of {tokens.count} ids read, from {found.least} to {found.most}, as {tokens.dtype}"
            out.add("tokens", ws.binary(tokens.file, tokens.member or "ids", "data.tokens", tokens.count, text=said))
            out.notes.append(f"{file.name}: {said}" + ("" if vocabulary else "; the vocabulary is not known"))
            if not found.whole:
                out.unread.append(f"{file.name}: {found.read} of {tokens.count} ids were read")
            elif not vocabulary:
                out.unread.append(f"{file.name}: no vocabulary size to compare the ids with")
            for key, value, place, text in found.found:
                out.add(key, ws.binary(tokens.file, place, f"data.{key}", value, text=text))
    except ParseError as e:
        out.add("corrupt", told(ws, Fault(file, "corrupt", str(e), "file")))


def _token_files(ws: Workspace, source: Source, vocabulary: int | None) -> Iterator[TokenFile]:
    if source.kind == "megatron":
        name = source.file.name[: -len(".idx")] + ".bin"
        yield megatron(source.file, next((f for f in ws.files if f.name == name), None))
    elif source.kind == "array":
        yield from arrays(source.file)
    else:
        yield flat(source.file, vocabulary)


# ----------
# How many examples a training counts, against how many its file of training data holds.

CODE_LIMIT = 400_000
FEW = 0.5  # of the records, below which a held-out part does not explain the difference
LEAST = 200  # records of a file that is no mere sample of the data
_COUNTED = re.compile(
    r"^(?!.*(?i:\beval|\bval|\btest))(?:.{0,80}[\s:\]|>-])?(?:[Nn]um(?:ber of)? (?:train(?:ing)? )?(?:examples|samples)"
    r"|[Tt]rain(?:ing)? (?:set|dataset|samples|examples)(?: size)?)\s*[=:]\s*(?P<n>\d[\d,]*)\s*$"
)
_TRAIN = re.compile(r"(?i)(?:^|[/_.\-])train(?:ing)?(?:[/_.\-\d]|$)")
# What makes fewer or other examples out of the records on purpose: in keys, in values, in code.
_KEYS = re.compile(
    r"(?i)pack|concat|block_size|max_(?:train_)?(?:samples|examples)|num_(?:train_)?(?:samples|examples)|subset|fraction"
    r"|percent|subsample|streaming|data_?ratio|shard|sample_size"
)
_VALUES = re.compile(r"\[\d*%?:\d*%?\]")
_CODE = re.compile(
    r"(?i)train_test_split|random_split|Subset\(|\.take\(|\.select\(|islice|pack(?:ing|ed|_)|group_texts|max_(?:train_)?samples"
    r"|streaming|\.sample\(|\.shard\("
)


def fewer(ws: Workspace) -> Iterator[tuple[int, int, tuple[tuple[RunFile, Line], ...]]]:
    """The examples counted and the records of the one training file, with the lines of both."""
    files = [f for f in of_the_run(ws, ws.by_role("data")) if _TRAIN.search(f.name) and not f.good]
    if len(files) != 1:
        return
    held = records(ws, files[0])
    if not LEAST <= len(held) < RECORDS or _meant(ws):
        return
    for log, line in beginnings(ws):
        if (b"amples" in line.data or b"rain" in line.data) and (m := _COUNTED.match(line.text[:400])):
            count = int(m["n"].replace(",", ""))
            if 0 < count < FEW * len(held) and not (_share(count, len(held)) or _grouped(count, held)):
                yield count, len(held), ((log, line), (files[0], held[-1].line))
            return


def _meant(ws: Workspace) -> bool:
    for s in read_settings(ws).all:
        if (_KEYS.search(s.key) and s.value not in (None, False, 0, "")) or _VALUES.search(str(s.value)[:400]):
            return True
    code = (f for f in ws.files if f.name.endswith((".py", ".ipynb")) and f.size < CODE_LIMIT)
    return any(_CODE.search(ws.text(f, CODE_LIMIT)) for f in code)


def _share(count: int, held: int) -> bool:
    """Whether the count is that of one rank among several, or of samples that take some rows each."""
    return any(abs(count * k - held) <= k for k in range(2, 65))


def _grouped(count: int, held: list[Record]) -> bool:
    """Whether rows belong together by a field (turns of a dialogue), or are the same again: then fewer are meant."""
    near = max(2, 0.03 * count)
    names = {name for record in held[:20] for name in record.fields}
    for name in names:
        if abs(len({str(record.fields.get(name)) for record in held}) - count) <= near:
            return True
    return abs(len({str(record.fields) for record in held}) - count) <= near or _blocks(held)


def _blocks(held: list[Record]) -> bool:
    """Whether blank lines part the rows: a token a line, a sentence a block."""
    gaps = sum(b.line.number - a.line.number > 1 for a, b in pairwise(held))
    return gaps > 0.01 * len(held)


# ----------
# Samples that a run wrote down with their lengths: do nearly all of them end where the limit is?

FEWEST = 4  # samples
SHARE = 0.8  # of them that have the full length
LINES = 20_000
_LENGTH = re.compile(
    r"""[(\[]\s*(\d{1,6})\s+(?:new |generated |output )?tokens?\s*[)\]]|\bgenerated\s+(\d{1,6})\s+(?:new )?tokens?\b"""
    r"""|["'](?:n_tokens|num_tokens|(?:output|completion|generated|new|response)_(?:tokens|length|len))["']\s*:\s*(\d{1,6})\b"""
)


def at_limit(ws: Workspace, file: RunFile) -> tuple[Line, float] | None:
    """The first sample of full length and the share of such, where nearly all samples of a file ran to the limit."""
    asked = {s.value for s in read_settings(ws).asked("max_new_tokens") if not s.file.good}
    limit = asked.pop() if len(asked) == 1 else None
    if not isinstance(limit, int) or limit < 2:
        return None
    first, full, count = None, 0, 0
    for number, line in enumerate(ws.lines(file)):
        if number >= LINES:
            break
        for m in _LENGTH.finditer(line.text[:20_000]):
            length = int(next(g for g in m.groups() if g))
            if length > limit:
                return None  # lengths of something else
            count += 1
            full += length == limit
            first = first or (line if length == limit else None)
    return (first, round(full / count, 3)) if first and count >= FEWEST and full >= SHARE * count else None
