"""Saved batches: what the model was fed, and what the loss mask covers."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from ...core import deadline
from ...core.errors import ParseError
from ...core.types import Evidence, ToolResult
from ...reading.datasets.batches import (
    IGNORED,
    Batch,
    Knowledge,
    Sequence,
    alignment,
    batches,
    faults,
    padding_of,
    spans,
)
from ...reading.datasets.columnar import medium_of
from ...reading.datasets.dataset_files import (
    NUMBERS,
    Fault,
    Row,
    Source,
    cited,
    limits,
    matches,
    place,
    preview,
    sources,
    told,
    unopened,
)
from ...reading.datasets.record_questions import (
    PICTURES_LEFT,
    broken_pictures,
    faults_of,
    held_media,
    is_loss_log,
    losses,
)
from ...reading.datasets.sampling import Look, StepRecords, look, records_of, stream
from ...reading.datasets.tokenizers import tokenizer
from ...reading.datasets.tokenizers import tokenizer as tokenizer_of
from ...reading.run.workspace import Workspace
from ...reading.settings.settings import read_settings
from ..tool import clean, finding, not_applicable, tool

EACH = 3  # rows shown of one key in one batch
SHOWN = 4  # rows printed
PIECE = 160  # characters of one stretch that are printed
_SHIFTS = frozenset({"hf", "trl", "axolotl", "llamafactory", "peft", "accelerate", "unsloth", "swift"})
_TRANSFORMERS = re.compile(
    r"(?m)^\s*(?:from|import) (?:transformers|trl|peft)\b|AutoModelFor|ForCausalLM|llamafactory|axolotl"
)
_FACTS = frozenset({"rows", "masked_share", "labels_next", "packed", "masked_lm", "cut_at_length"})


@tool(emits=("batch.*",), recall=True)
def inspect_batch(
    ws: Workspace,
    path: Annotated[str, Field(description="File of the batch inside the run; every saved batch when empty")] = "",
    tokenizer: Annotated[str, Field(description="Folder or file of the tokenizer; the run's own when empty")] = "",
) -> ToolResult:
    """Decode a saved batch and show what the loss mask covers: prompt, answer, padding, end of text.

    Use when the loss is zero, odd from the start or not about the answers, or generation never stops. Reads torch
    and numpy files, JSON lines with input_ids and labels, and printed tensors.
    """
    found = batches(ws, path)
    if not any(b.rows for b in found):
        unread = [f"{b.file.name}: {b.unread}" for b in found]
        if unread:
            return ToolResult("failed", unread[0], [], "\n".join(unread))
        return not_applicable(f"no saved batch {'named ' + path if path else 'among the files of the run'}")
    known = _knowledge(ws, tokenizer)
    counts: Counter[str] = Counter()
    evidence: list[Evidence] = []
    text: list[str] = []
    for batch in found:
        if batch.rows:
            text += _batch(ws, batch, known, counts, evidence)
    return _answer(found, known, counts, evidence, text)


def _knowledge(ws: Workspace, path: str) -> Knowledge:
    encoder, said = tokenizer_of(ws, path), limits(ws)
    special = encoder.special if encoder else {}
    bos, eos, pad = (
        given if given is not None else special.get(name)
        for name, given in (("bos", said.bos), ("eos", said.eos), ("pad", said.pad))
    )
    return Knowledge(encoder, said.vocabulary or (encoder.size if encoder else None), bos, eos, pad, said.positions)


def _batch(ws: Workspace, batch: Batch, known: Knowledge, counts: Counter[str], evidence: list[Evidence]) -> list[str]:
    shown: Counter[str] = Counter()

    def add(row: Sequence, key: str, value: Any, words: str) -> None:
        shown[key] += 1
        counts[key] += 1
        if shown[key] <= EACH:
            evidence.append(row.shown(ws, key, value, words))

    first = batch.rows[0]
    add(first, "rows", len(batch.rows), f"{len(batch.rows)} rows of {len(first.ids)} ids")
    for row in batch.rows:
        for key, value, words in faults(row, known):
            add(row, key, value, words)
    _whole(ws, batch, known, add)
    lines = [
        f"{batch.file.name}: {len(batch.rows)} rows of {len(first.ids)} ids"
        + (f"; {batch.unread}" if batch.unread else "")
    ]
    for row in batch.rows[:SHOWN]:
        lines += [f"row {row.number}:", *_printed(row, known)]
    if len(batch.rows) > SHOWN:
        lines.append(f"... and {len(batch.rows) - SHOWN} more rows")
    return lines


def _whole(ws: Workspace, batch: Batch, known: Knowledge, add: Any) -> None:
    """What the rows say together: share masked, alignment of labels, packing, cuts."""
    rows = [r for r in batch.rows if r.labels is not None]
    labels = [v for r in rows for v in r.labels or []]
    if labels:
        share = round(labels.count(IGNORED) / len(labels), 4)
        add(rows[0], "masked_share", share, f"{labels.count(IGNORED)} of {len(labels)} labels are masked")
    aligned = [(a, r) for r in rows if (a := alignment(r))]
    if aligned:
        total = sum(a[2] for a, _ in aligned)
        same = sum(a[0] * a[2] for a, _ in aligned) / total
        following = sum(a[1] * a[2] for a, _ in aligned) / total
        words = f"{same:.0%} of {total} labels equal the id in their place, {following:.0%} the next id"
        if following > 0.9 and same < 0.5:
            shifts = _model_shifts(ws)
            more = "; the model shifts labels itself, so each place learns the id after the next" if shifts else ""
            add(aligned[0][1], "double_shift" if shifts else "labels_next", round(following, 3), words + more)
        elif same < 0.5 and (token := _mask_token(rows)) is not None:
            add(aligned[0][1], "masked_lm", token, f"masked language modelling: id {token} stands in for the labels")
        elif same < 0.5 and following < 0.5:
            add(aligned[0][1], "labels_unrelated", round(max(same, following), 3), words)
    inner = [(n, r) for r in batch.rows if (n := _inner_ends(r, known))]
    if inner:
        add(inner[0][1], "packed", inner[0][0], f"{len(inner)} of {len(batch.rows)} rows hold several texts")
    whole = [
        r
        for r in batch.rows
        if known.eos is not None and padding_of(r, known)[1] == len(r.ids) and r.ids[-1] != known.eos
    ]
    if whole:
        add(
            whole[0],
            "cut_at_length",
            round(len(whole) / len(batch.rows), 3),
            "rows that fill the length without an end",
        )


def _model_shifts(ws: Workspace) -> bool:
    """Whether the run uses models that shift labels themselves, as those of transformers do."""
    if read_settings(ws).frameworks & _SHIFTS:
        return True
    return any(_TRANSFORMERS.search(ws.text(f, 64 << 10)) for f in ws.by_role("code", "config", "environment")[:40])


def _mask_token(rows: list[Sequence]) -> int | None:
    """The id that stands in most labelled places, as in masked language modelling."""
    seen = Counter(i for r in rows for i, v in zip(r.ids, r.labels or [], strict=True) if v != IGNORED)
    if not seen:
        return None
    token, count = seen.most_common(1)[0]
    return token if count > 0.5 * sum(seen.values()) else None


def _inner_ends(row: Sequence, known: Knowledge) -> int:
    _, last = padding_of(row, known)
    starts = (row.positions or [])[:last].count(0)
    begun = row.ids[:last].count(known.bos) if known.bos is not None and known.bos != known.eos else 0
    return max(starts, begun) if max(starts, begun) > 1 and row.ids[:2] != [known.bos] * 2 else 0


def _printed(row: Sequence, known: Knowledge) -> list[str]:
    """The stretches of a row, decoded."""
    out = []
    for span in spans(row, known)[:40]:
        ids = row.ids[span.start : span.end]
        text = known.tokenizer.decode(ids[:400]) if known.tokenizer else " ".join(map(str, ids[:40]))
        cut = f"{text[:PIECE]!r}" + ("..." if len(text) > PIECE or len(ids) > 400 else "")
        kind = span.kind if row.labels is not None else "no labels"
        out.append(f"  [{kind} {span.end - span.start}] {cut}")
    return out


def _answer(
    found: list[Batch], known: Knowledge, counts: Counter[str], evidence: list[Evidence], text: list[str]
) -> ToolResult:
    rows = sum(len(b.rows) for b in found)
    said = f"{rows} rows in {len(found)} batches"
    lacking = [w for w, v in (("tokenizer", known.tokenizer), ("vocabulary size", known.vocabulary)) if v is None]
    if lacking:
        text = [*text, f"not known: {', '.join(lacking)}"]
    text = [*text, *(f"{key}: {n} rows" for key, n in counts.items() if key not in _FACTS)]
    text += [f"{e.member or f'line {e.line}'} {e.key} {e.value}: {e.text[:200]}" for e in evidence]
    telling = [key for key in counts if key not in _FACTS]
    if telling:
        kinds = ", ".join(f"{key} ({counts[key]})" for key in telling)
        return finding(f"{said}: {kinds}", evidence, "\n".join(text))
    unread = [f"{b.file.name}: {b.unread}" for b in found if b.unread]
    if unread or "vocabulary size" in lacking or not counts["masked_share"]:
        why = unread[0] if unread else "no labels" if not counts["masked_share"] else "the vocabulary size is not known"
        return ToolResult(
            "failed", f"{said}, nothing odd seen, but not everything could be checked: {why}", evidence, "\n".join(text)
        )
    return clean(f"{said}, the mask covers what it should", evidence, "\n".join(text))


# ----------
# The records of a step that went wrong.

BAD_SAMPLES_EACH = 5  # records shown of one key
SECONDS = 45.0
_BAD_SAMPLES_FACTS = frozenset({"step", "range", "order", "logged_indices"})
LOG_IT = "log the indices of every batch beside its step, or seed the sampler and set shuffle to false for one rerun"


@tool(emits=("sample.*",))
def find_bad_samples(
    ws: Workspace,
    path: Annotated[str, Field(description="Dataset inside the run; all when empty")] = "",
    step: Annotated[int, Field(description="Step that went wrong; 0 takes the first odd one of the loss", ge=0)] = 0,
) -> ToolResult:
    """Find the records of a step that went wrong: not finite, empty, far too long, out of range, broken pictures.

    Use when the loss was NaN or spiked at one step while the step before was calm. Names the records of the step
    where the run logged them or read its data in order; otherwise looks at all and says what to log.
    """
    chosen = [s for s in sources(ws, path) if s.kind not in NUMBERS and s.file.role != "metrics"]
    logs = _loss_logs(ws, path)
    chosen = [s for s in chosen if s.file.name not in {one.source.file.name for one in logs}]
    which = records_of(ws, step)
    out = _Found(ws, which)
    for one in logs:
        for key, value, row in losses(one.rows):
            out.add(key, cited(ws, row, f"sample.{key}", value), place(row))
    unread = _scan(ws, chosen, which, out)
    pictures = 0
    for file, why in broken_pictures(ws):
        pictures += 1
        out.add(
            "broken_media", ws.binary(file, "file", "sample.broken_media", why, text=f"{file.name}: {why}"), file.name
        )
    unread += _missed(ws, path, logs)
    if not (chosen or logs or pictures or unread):
        return not_applicable("no records, no pictures and no losses by sample among the run's files")
    return out.answer(unread)


def _missed(ws: Workspace, path: str, logs: list[Look]) -> list[str]:
    """Records and pictures that were found and could not be read, and losses that were not read to their end."""
    pictures = [f"{name}: {why}" for name, why in ws.skipped if name == PICTURES_LEFT or medium_of(name)]
    losses = [f"{one.source.file.name}: {one.stopped}" for one in logs if one.stopped]
    return list(dict.fromkeys([*unopened(ws, path), *pictures, *losses]))


def _loss_logs(ws: Workspace, path: str) -> list[Look]:
    """Files that give the loss of single samples."""
    out = []
    for file in ws.by_role("data", "metrics", "log", "other"):
        base = file.name.lower()
        if file.good or not matches(file.name, path) or not base.endswith((".jsonl", ".csv", ".tsv")):
            continue
        kind = base.rsplit(".", 1)[-1]
        if b"loss" not in (head := ws.head(file)) and b"nll" not in head:
            continue
        one = look(ws, Source(file, kind), 200_000, 40 << 20, 10.0)
        if one.rows and is_loss_log(one.rows[0]):
            out.append(one)
    return out


class _Found:
    """Evidence so far, with counts and what is said about the step."""

    def __init__(self, ws: Workspace, which: StepRecords) -> None:
        self.evidence: list[Evidence] = [e for e in (which.seen, which.cited) if e is not None]
        self.counts: Counter[str] = Counter()
        self.text: list[str] = []
        self.scanned = 0
        self._which = which
        if which.numbers:
            first, last = min(which.numbers), max(which.numbers)
            said = f"step {which.step}: {len(which.numbers)} records, {first} to {last} ({which.why})"
            self.evidence.append(
                Evidence(key="sample.range", value=f"{first}-{last}", kind="command", text=said, step=which.step)
            )
        else:
            said = f"records of step {which.step} are not known: {which.why}; {LOG_IT}" if which.step else which.why
        self.text.append(said)

    def add(self, key: str, evidence: Evidence, place: str) -> None:
        """Count one bad record and keep the first few."""
        self.counts[key] += 1
        if self.counts[key] <= BAD_SAMPLES_EACH:
            self.evidence.append(evidence)
            self.text.append(f"{place} {key} {evidence.value}")

    def answer(self, unread: list[str]) -> ToolResult:
        """The result of the tool."""
        self.text += [f"{key}: {n}" for key, n in self.counts.items()] + [f"not looked at: {why}" for why in unread]
        text = "\n".join(self.text)
        if self.counts:
            kinds = ", ".join(f"{key} ({n})" for key, n in self.counts.items())
            return finding(f"{self.scanned} records looked at: {kinds}; {self.text[0]}", self.evidence, text)
        said = f"{self.scanned} records looked at, none is bad by itself; {self.text[0]}"
        if unread:
            return ToolResult("failed", f"{said}; {unread[0]}", self.evidence, text)
        return clean(said, self.evidence, text)


def _rows(ws: Workspace, source: Source, one: Look) -> Iterator[Row]:
    """Records up to where the file cannot be read any more."""
    try:
        yield from stream(ws, source, one)
    except ParseError as e:
        one.tell(Fault(source.file, "corrupt", str(e), "file"))


def _scan(ws: Workspace, chosen: list[Source], which: StepRecords, out: _Found) -> list[str]:
    """Look at the records of the step, and then at all of them as far as the time goes."""
    known, encoder = limits(ws), tokenizer(ws)
    vocabulary = known.vocabulary or (encoder.size if encoder else None)
    held = held_media(ws)
    ends = time.monotonic() + SECONDS
    wanted = frozenset(which.numbers)
    training = [s for s in chosen if "train" in s.file.name.lower()] or chosen
    unread: list[str] = []
    for source in chosen:
        one = Look(source)
        for row in _rows(ws, source, one):
            deadline.check()
            out.scanned += 1
            bad = list(faults_of(row, known, vocabulary, held))
            inside = len(training) == 1 and source is training[0] and row.number in wanted
            if inside and (bad or len(wanted) <= 8):
                said = ", ".join(key for key, _ in bad) or "nothing wrong by itself"
                out.evidence.append(cited(ws, row, "sample.bad_in_step" if bad else "sample.of_step", said))
                out.text.append(f"{place(row)} of the step: {said}: {preview(row.fields, 300)}")
            for key, value in bad:
                out.add(key, cited(ws, row, f"sample.{key}", value), place(row))
            if out.scanned % 256 == 0 and time.monotonic() > ends:
                unread.append(f"{source.file.name}: stopped after {one.seen} records, out of time")
                return unread
        if len(training) == 1 and source is training[0] and wanted and min(wanted) >= one.seen:
            unread.append(f"the step lies beyond the {one.seen} records of {source.file.name}: a later epoch")
        for fault in one.faults:
            if fault.kind == "not_read":
                unread.append(f"{source.file.name}: {fault.text}")
                continue
            out.add(fault.kind, told(ws, fault).with_(key=f"sample.{fault.kind}"), source.file.name)
    if wanted and len(training) > 1:
        unread.append(f"{len(training)} files may hold the records of the step; name one with path")
    return unread
