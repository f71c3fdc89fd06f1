"""Samples of the data: records, printed tensors and statistics among the run's files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ..reading import dumps, samples
from ..reading.datasets.counted import fewer
from ..reading.datasets.limits import Limits, limits
from ..reading.datasets.misread import misread
from ..reading.datasets.overlap import held_out, shared
from ..reading.datasets.rows import Row
from ..reading.datasets.run_to_limit import at_limit
from ..reading.files import Line, RunFile
from ..reading.records import Record, records
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

FILES = 40  # data files read
TEXTS = 40  # text files looked through for dumps and statistics
TEXT_BYTES = 256 << 10  # of one such file
FEW = 1500  # records of which the word n-grams are compared; of more, whole texts
EACH = 3  # lines shown of one key in one file

_TABULAR = re.compile(r"\.(jsonl|ndjson|json|csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
_DUMP = re.compile(rb"(labels?|_mask)['\"]?\]?\s*[:=]\s*(?:tensor|array)?\(?\s*\[")
_WRITTEN = frozenset({"generated", "generation", "generated_text", "prediction", "extracted", "model_output", "resps"})
_QUIET = frozenset({"data.records", "data.tool_turns"})  # facts, not findings


@tool(emits=("data.*",), recall=True)
def check_data_files(ws: Workspace) -> ToolResult:
    """Check samples of the data among the run's files: schema, empty and over-long texts, masks, truncated answers.

    Use when a loss is wrong, zero or NaN, samples vanish, evaluation scores are implausible, or ranks disagree on
    shapes. Reads JSON lines, JSON arrays, CSV, printed tensors and statistics. Lengths in tokens are estimates.
    """
    files = [f for f in ws.by_role("data") if _TABULAR.search(f.name) or f.name.endswith((".txt", ".json"))][:FILES]
    texts = [f for f in ws.files if f.role in ("data", "log", "other", "capture") and f.size <= TEXT_BYTES][:TEXTS]
    known = limits(ws)
    evidence: list[Evidence] = []
    read = 0
    for file in files:
        found = records(ws, file)
        if found:
            read += len(found)
            evidence += _of_records(ws, file, found, known)
    evidence += _overlap(ws, files)
    evidence += [ws.cite(file, line, "data.encoding_misread", says) for file, line, says in list(misread(ws))[:EACH]]
    for count, _held, places in fewer(ws):
        evidence += [ws.cite(file, line, "data.fewer_than_records", count) for file, line in places]
    for file in texts:
        evidence += _of_text(ws, file, known)
        if found := at_limit(ws, file):
            evidence.append(ws.cite(file, found[0], "data.length_limited", found[1]))
    if not files and not evidence:
        return not_applicable("no samples of the data among the run's files")
    telling = [e for e in evidence if e.key not in _QUIET]
    said = f"{read} records in {len(files)} files"
    if not telling:
        return clean(f"{said}, nothing odd", evidence)
    kinds = sorted({e.key.removeprefix("data.") for e in telling})
    text = "\n".join(f"{e.file}:{e.line} {e.key} {e.value}: {e.text.strip()[:200]}" for e in evidence)
    return finding(f"{said}: {', '.join(kinds)}", evidence, text)


def _of_records(ws: Workspace, file: RunFile, found: list[Record], limits: Limits) -> Iterator[Evidence]:
    yield ws.cite(file, found[0].line, "data.records", len(found))
    shown: Counter[str] = Counter()
    corpus = not held_out(file.name) and not _WRITTEN & found[0].fields.keys()
    for key, value, record in _questions(found, limits, corpus):
        shown[key] += 1
        if shown[key] <= EACH:
            yield ws.cite(file, record.line, f"data.{key}", value)


def _questions(found: list[Record], limits: Limits, corpus: bool) -> Iterator[samples.Found]:
    """Everything asked of a file; of what a model wrote or is asked, repeats say nothing about the corpus."""
    yield from samples.modalities(found)
    yield from samples.empties(found)
    yield from samples.schemas(found)
    yield from samples.speakers(found)
    yield from samples.nulls(found)
    yield from samples.damage(found)
    if corpus:
        yield from samples.repeats(found)
        yield from samples.boilerplate(found)
    yield from samples.ranges(found, limits.classes, limits.vocabulary)
    yield from samples.cut_short(found, limits.stops)
    yield from samples.openings(found)
    yield from samples.unmarked(found, limits.bos, limits.eos)
    yield from samples.turns(found)
    yield from samples.scores(found)
    if limits.tokens:
        yield from samples.long_ones(found, limits.tokens)


def _overlap(ws: Workspace, files: list[RunFile]) -> Iterator[Evidence]:
    """Records of a test file that a training file holds too."""
    tests = [f for f in files if held_out(f.name)]
    trains = [f for f in files if f not in tests and re.search(r"(?i)train", f.name)]
    few = [r for f in (*tests, *trains) for r in records(ws, f)] if tests and trains else []
    if 0 < len(few) <= FEW:
        found = list(_alike(ws, tests, trains))
        yield from found
        if found:
            return
    known = {_identity(r) for f in trains for r in records(ws, f)} - {""}
    for file in tests if known else []:
        leaked = [r for r in records(ws, file) if _identity(r) in known]
        if leaked:
            yield ws.cite(file, leaked[0].line, "data.contamination", len(leaked))


def _alike(ws: Workspace, tests: list[RunFile], trains: list[RunFile]) -> Iterator[Evidence]:
    """The same for small files, by the word n-grams of each item."""
    items, train = (
        [Row(r.line, r.fields, f, n) for f in files for n, r in enumerate(records(ws, f))] for files in (tests, trains)
    )
    met = shared(items, train)
    for pair in met[:EACH]:
        yield ws.cite(pair.item.file, pair.item.line, "data.contamination", len(met))
        yield ws.cite(pair.train.file, pair.train.line, "data.contamination", len(met))


def _identity(record: Record) -> str:
    """The longest text of a record, as far as it identifies it; empty where it is too short to."""
    longest = max(record.texts(), key=len, default="")
    return " ".join(longest.split()).lower()[:2000] if len(longest) >= 30 else ""


def _of_text(ws: Workspace, file: RunFile, limits: Limits) -> Iterator[Evidence]:
    """Printed label tensors that are all masked, and statistics against the limit of the run."""
    if file.role != "data" and not _DUMP.search(ws.read(file, TEXT_BYTES)):
        return
    lines: list[Line] = list(ws.lines(file))
    for dump in dumps.dumps(lines):
        if dump.name.startswith("label") and len(dump.numbers) >= 4:
            if all(n == -100 for n in dump.numbers):
                yield ws.cite(file, dump.line, "data.all_masked", dump.name)
            elif limits.vocabulary and max(dump.numbers) >= limits.vocabulary:
                yield ws.cite(file, dump.line, "data.label_out_of_range", int(max(dump.numbers)))
        elif dump.name.endswith("_mask") and len(dump.numbers) >= 4 and not any(dump.numbers):
            yield ws.cite(file, dump.line, "data.all_masked", dump.name)
    if file.role != "data":
        return
    for line, count in dumps.rows(lines):
        yield ws.cite(file, line, "data.records", count)
    for line, count in dumps.lengths(lines):
        if limits.tokens and count > limits.tokens:
            yield ws.cite(file, line, "data.long_records", count)
