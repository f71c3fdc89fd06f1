"""All questions to a dataset, file by file: what was found, with rows that show it, and what was not read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ... import deadline
from ...errors import ParseError
from ...types import Evidence
from .. import samples
from ..records import Record
from . import questions
from .lengths import Lengths, lengths
from .limits import Limits
from .rows import Fault, Row, Source, cited, told
from .sampling import Look
from .token_questions import look_at_tokens
from .tokenizer import Tokenizer
from .tokens import TokenFile, arrays, flat, megatron

if TYPE_CHECKING:
    from ...workspace import Workspace

DAMAGE = ("encoding_damage", "control_characters")
TRACE = 0.002  # share of records below which damaged characters are a fact about real text, not a finding
EACH = 3  # rows shown of one key in one file
TOTAL = 12  # of one key in all files
QUIET = frozenset({
    "records", "tool_turns", "sampled", "longest_tokens", "other_script", "sorted_by_label", "repetitive", "tokens",
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


def inspect_rows(ws: Workspace, looked: Look, limits: Limits, tokenizer: Tokenizer | None, out: Findings) -> None:
    """Ask every question about one file of records."""
    rows, file = looked.rows, looked.source.file
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


def _found(rows: list[Row], limits: Limits, tokenizer: Tokenizer | None) -> Iterator[tuple[str, Any, Record]]:
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
        lambda: questions.openings(rows, bos if bos is not None else special.get("bos"), special.get("eos")),
        lambda: questions.ranges(rows, vocabulary),
        lambda: questions.numbers(rows),
        lambda: questions.controls(rows),
        lambda: questions.halves(rows),
        lambda: questions.packing(rows),
        lambda: questions.classes(rows),
        lambda: questions.scripts(rows),
        lambda: questions.copies(rows),
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


def _lengths(ws: Workspace, looked: Look, found: Lengths, limit: int | None, out: Findings) -> None:
    rows, counts = looked.rows, found.tokens
    if not rows:
        return
    order = sorted(range(len(rows)), key=lambda n: -counts[n])
    longest, median, high = counts[order[0]], found.quantile(0.5), found.quantile(0.95)
    out.notes.append(
        f"{looked.source.file.name}: length median {median}, 95 % up to {high}, longest {longest} ({found.how})"
    )
    out.add("longest_tokens", cited(ws, rows[order[0]], "data.longest_tokens", longest))
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


def inspect_tokens(ws: Workspace, source: Source, limits: Limits, tokenizer: Tokenizer | None, out: Findings) -> None:
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
