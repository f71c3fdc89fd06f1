"""Whole datasets: what is wrong with them, and what their records look like."""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import Evidence, ToolResult
from ...reading.datasets import batches, samples, sampling
from ...reading.datasets.dataset_files import (
    NUMBERS,
    Limits,
    Row,
    Source,
    cited,
    is_written,
    limits,
    of_the_run,
    place,
    preview,
    sources,
    unopened,
)
from ...reading.datasets.eval_items import Item, Results, is_right, reasons, results, together
from ...reading.datasets.inspection import Findings, at_limit, fewer, inspect_rows, inspect_tokens
from ...reading.datasets.overlap import changes, held_out, shared, summaries
from ...reading.datasets.record_questions import misread
from ...reading.datasets.sampling import COST, Look, look
from ...reading.datasets.tokenizers import tokenizer
from ...reading.run.files import Line, RunFile
from ...reading.run.records import RECORDS, Record, records
from ...reading.run.workspace import Workspace
from ..tool import clean, few, finding, not_applicable, tool

SECONDS = 45.0  # of reading, all files together
CUT = 1500  # characters of one record that are printed

Path = Annotated[str, Field(description="File, folder or pattern inside the run; all data files when empty")]


@tool(emits=("data.*",))
def check_dataset(
    ws: Workspace,
    path: Path = "",
    against: Annotated[str, Field(description="Evaluation set that must not occur in the data")] = "",
    sample: Annotated[int, Field(description="Records of one file that are looked at closely", ge=10)] = 20_000,
) -> ToolResult:
    """Check whole datasets: schema, lengths, encoding, token ranges, repeats, near duplicates, overlap with test sets.

    Use when a loss, a score or an error points at the data, or before a run is started. Reads JSON lines and arrays,
    CSV, parquet, arrow, text, Megatron and flat token files, numpy arrays and tar shards. Large files are sampled
    evenly and the answer says how much was looked at.
    """
    chosen = sources(ws, path)
    tests = sources(ws, against) if against else [s for s in chosen if held_out(s.file.name)]
    if against and not tests:
        raise ToolError(
            f"no evaluation set named {against} among the files of the run (give its path beside the run's)"
        )
    chosen += [s for s in tests if s.file not in [c.file for c in chosen]]
    if not chosen and (unread := unopened(ws, path)):
        return ToolResult("failed", f"no dataset could be read: {unread[0]}", [], "\n".join(unread))
    if not chosen:
        return not_applicable(f"no dataset {'named ' + path if path else 'among the files of the run'}")
    found = Findings()
    looked = _read(ws, chosen, sample, found)
    said = tuple(u.partition(": ")[0] for u in found.unread)
    found.unread += [why for why in unopened(ws, path) if why.partition(": ")[0] not in said]
    _overlap(ws, looked, [s.file.name for s in tests], found)
    return _answer(found, looked, len(chosen))


def _read(ws: Workspace, chosen: list[Source], sample: int, found: Findings) -> list[Look]:
    known, encoder = limits(ws), tokenizer(ws)
    ends = time.monotonic() + SECONDS
    looked: list[Look] = []
    for n, source in enumerate(chosen):
        left = ends - time.monotonic()
        if left <= 0:
            found.unread.append(f"{len(chosen) - n} of {len(chosen)} files were not read: out of time")
            break
        if source.kind in NUMBERS:
            inspect_tokens(ws, source, known, encoder, found)
            continue
        share = max(2.0, left / (len(chosen) - n))
        one = look(ws, source, sample, max(1 << 20, COST // len(chosen)), share)
        inspect_rows(ws, one, known, encoder, found)
        looked.append(one)
    return looked


def _overlap(ws: Workspace, looked: list[Look], tests: list[str], found: Findings) -> None:
    items = [r for one in looked if one.source.file.name in tests for r in one.rows]
    train = [r for one in looked if one.source.file.name not in tests for r in one.rows]
    if not items or not train:
        return
    met = shared(items, train)
    found.notes.append(f"{len(met)} of {len(items)} evaluation items occur in {len(train)} training records")
    for pair in met[:2]:
        found.add("contamination", cited(ws, pair.item, "data.contamination", len(met)), 0)
        found.add("contamination", cited(ws, pair.train, "data.contaminated_record", pair.share), 0)
    found.counts["contamination"] += len(met)
    found.counts += type(found.counts)()


def _answer(found: Findings, looked: list[Look], files: int) -> ToolResult:
    seen, close = sum(o.seen for o in looked), sum(len(o.rows) for o in looked)
    said = f"{close} of {seen} records" if close < seen else f"{seen} records"
    said += f" in {files} files" + (" looked at" if close < seen else "")
    rows = [found.said(key) for key in found.counts] + found.notes
    rows += [f"not looked at: {why}" for why in found.unread]
    for e in found.evidence:
        where = f"{e.file}:{e.line}" if e.line else f"{e.file}, {e.member}"
        rows.append(f"{where} {e.key} {e.value}: {e.text.strip()[:200]}")
    text = "\n".join([said, *rows])
    if found.telling:
        kinds = ", ".join(found.said(key) for key in found.telling)
        return finding(f"{said}: {kinds}", found.evidence, text)
    if found.unread:
        why = f"{said}, nothing odd in them; not everything was read: {found.unread[0]}"
        return ToolResult("failed", why, found.evidence, text)
    return clean(f"{said}, nothing odd", found.evidence, text)


@tool(emits=("data.shown",))
def sample_records(
    ws: Workspace,
    path: Path = "",
    count: Annotated[int, Field(description="Records shown", ge=1, le=100)] = 10,
    seed: Annotated[int, Field(description="Another seed shows other records")] = 0,
    where: Annotated[
        Literal["random", "first", "longest", "shortest", "repetitive", "odd"],
        Field(description="Which records: random, first, by length, repeating themselves, with odd characters"),
    ] = "random",
) -> ToolResult:
    """Show records of a dataset: at random, or the longest, shortest, most repetitive or oddly encoded.

    Use to see with your own eyes what the model is trained on. Each record is cut, with its full length told.
    """
    chosen = [s for s in sources(ws, path) if s.kind not in NUMBERS]
    if not chosen:
        return not_applicable(f"no records {'named ' + path if path else 'among the files of the run'}")
    rows: list[Row] = []
    unread: list[str] = []
    seen = 0
    for source in chosen:
        one = look(ws, source, 20_000, max(1 << 20, COST // len(chosen)), SECONDS / len(chosen))
        rows += one.rows
        seen += one.seen
        unread += [f"{source.file.name}: {f.text}" for f in one.faults if f.kind in ("corrupt", "torn_records")]
    picked = sampling.picked(rows, where, count, seed)
    if not rows and unread:
        return ToolResult("failed", f"no record could be read: {unread[0]}", [], "\n".join(unread))
    if not picked:
        return not_applicable(f"no record is {where} among {len(rows)} that were read")
    shown = [f"{place(r)}: {preview(r.fields, CUT)}" for r in picked]
    evidence = [cited(ws, r, "data.shown", r.number) for r in picked]
    summary = f"{len(picked)} records ({where}) of {len(rows)} read of {seen} in {len(chosen)} files"
    return finding(summary, evidence, "\n".join([summary, *shown]))


# ----------
# Samples of the data: records, printed tensors and statistics among the run's files.

FILES = 40  # data files read
TEXTS = 40  # text files looked through for dumps and statistics
TEXT_BYTES = 256 << 10  # of one such file
FEW = 1500  # records of which the word n-grams are compared; of more, whole texts
EACH = 3  # lines shown of one key in one file

_TABULAR = re.compile(r"\.(jsonl|ndjson|json|csv|tsv)(\.(gz|zst))?$", re.IGNORECASE)
_DUMP = re.compile(rb"(labels?|_mask)['\"]?\]?\s*[:=]\s*(?:tensor|array)?\(?\s*\[")
_WRITTEN = frozenset({"generated", "generation", "generated_text", "prediction", "extracted", "model_output", "resps"})
_PLAIN_NUMBER, _YEAR = re.compile(r"\s*-?\d+(?:\.\d+)?\s*$"), re.compile(r"(?:19|20)\d\d$")
_QUIET = frozenset({"data.records", "data.tool_turns"})  # facts, not findings


@tool(emits=("data.*",), recall=True)
def check_data_files(ws: Workspace) -> ToolResult:
    """Check samples of the data among the run's files: schema, empty and over-long texts, masks, truncated answers.

    Use when a loss is wrong, zero or NaN, samples vanish, evaluation scores are implausible, or ranks disagree on
    shapes. Reads JSON lines, JSON arrays, CSV, printed tensors and statistics. Lengths in tokens are estimates.
    """
    own = of_the_run(ws, ws.files)
    files = [f for f in own if f.role == "data" and (_TABULAR.search(f.name) or f.name.endswith(".txt"))][:FILES]
    texts = [f for f in own if f.role in ("data", "log", "other", "capture") and f.size <= TEXT_BYTES][:TEXTS]
    known = limits(ws)
    evidence: list[Evidence] = []
    read = 0
    for file in files:
        found = records(ws, file)
        if found:
            read += len(found)
            evidence += _of_records(ws, file, found, known)
    evidence += _overlap_data(ws, files)
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
    written = is_written(ws, file) or bool(_WRITTEN & found[0].fields.keys())
    if not written and len(found) < RECORDS:  # of more, only so many were read
        yield ws.cite(file, found[0].line, "data.records", len(found) + _is_headless(file, found[0]))
    corpus = not written and not held_out(file.name)
    for key, value, record in few(_questions(found, limits, corpus), EACH, lambda x: x[0]):
        yield ws.cite(file, record.line, f"data.{key}", value)


def _is_headless(file: RunFile, first: Record) -> bool:
    """Whether a table has no names of columns: what stands for one is a number that is neither its place nor a year."""
    names = enumerate(map(str, first.fields)) if file.path.suffix in (".csv", ".tsv") else ()
    return any(_PLAIN_NUMBER.match(n) and n != str(i) and not _YEAR.match(n) for i, n in names)


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


def _overlap_data(ws: Workspace, files: list[RunFile]) -> Iterator[Evidence]:
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
    for dump in batches.dumps(lines):
        if dump.name.startswith("label") and len(dump.numbers) >= 4:
            if all(n == -100 for n in dump.numbers):
                yield ws.cite(file, dump.line, "data.all_masked", dump.name)
            elif limits.vocabulary and max(dump.numbers) >= limits.vocabulary:
                yield ws.cite(file, dump.line, "data.label_out_of_range", int(max(dump.numbers)))
        elif dump.name.endswith("_mask") and len(dump.numbers) >= 4 and not any(dump.numbers):
            yield ws.cite(file, dump.line, "data.all_masked", dump.name)
    if file.role != "data":
        return
    for line, count in batches.rows(lines):
        yield ws.cite(file, line, "data.records", count)
    for line, count in batches.lengths(lines):
        if limits.tokens and count > limits.tokens:
            yield ws.cite(file, line, "data.long_records", count)


# ----------
# Results of an evaluation, item by item: why the wrong ones are wrong.

EVAL_RESULTS_EACH = 3  # items shown of one reason in one group
PRINTED = 2  # items printed of one reason
EVAL_RESULTS_FEW = 0.03  # share of the wrong items below which a reason is told but not called a finding
MANY = 10  # items that are wrong for no reason in the record, below which that is not told
_FACTS = frozenset({"items", "accuracy", "score"})


@tool(emits=("eval_result.*",), recall=True)
def eval_failures(
    ws: Workspace,
    path: Annotated[str, Field(description="File or folder of results inside the run; all when empty")] = "",
) -> ToolResult:
    """Group the wrong items of an evaluation by why they are wrong: cut, empty, not extracted, other format, loops.

    Use when a score is lower than expected or at chance. Reads samples and results of lm-evaluation-harness,
    OpenCompass, and JSON or JSON lines with a prediction and an answer. A value is the share of all items.
    Compares scores before and after training where two files give them.
    """
    found = results(ws, path)
    evidence = [*summaries(ws, path), *_before_after(ws)]
    if not found and not evidence:
        return not_applicable(f"no results of an evaluation {'named ' + path if path else 'among the files'}")
    text: list[str] = []
    telling = [e.key.removeprefix("eval_result.") for e in evidence if e.key != "eval_result.score"]
    for one in found:
        groups: dict[str, list[Item]] = defaultdict(list)
        for item in one.items:
            groups[item.group].append(item)
        for name, items in groups.items():
            telling += _group(ws, one, name, items, evidence, text)
        if one.unread:
            text.append(f"{one.file.name}: {one.unread}")
    text += [f"{e.file}:{e.line} {e.key} {e.value}" for e in evidence if e.key.endswith(("disagree", "template"))]
    total = sum(len(o.items) for o in found)
    said = f"{total} items in {len(found)} files"
    if telling:
        kinds = ", ".join(dict.fromkeys(telling))
        return finding(f"{said}: {kinds}", evidence, "\n".join([said, *text]))
    unread = [f"{o.file.name}: {o.unread}" for o in found if o.unread]
    if unread or not found:
        why = unread[0] if unread else "only summaries are there, no items"
        return ToolResult("failed", f"{said}, nothing odd seen; {why}", evidence, "\n".join([said, *text]))
    return clean(f"{said}: wrong answers are just wrong", evidence, "\n".join([said, *text]))


def _before_after(ws: Workspace) -> Iterator[Evidence]:
    """Scores that fell or rose with the training, both lines of each."""
    for change in sorted(changes(ws), key=lambda c: c.after - c.before)[:8]:
        if change.fell or change.rose:
            told = {"name": change.name, "before": change.before, "after": change.after}
            key = f"eval_result.{'fell' if change.fell else 'rose'}_after_training"
            for file, line in dict.fromkeys(zip(change.files, change.lines, strict=True)):
                yield ws.cite(file, line, key, told)


def _group(
    ws: Workspace, one: Results, name: str, items: list[Item], evidence: list[Evidence], text: list[str]
) -> list[str]:
    """One task and filter: its score, and the reasons of its wrong items. The keys of findings."""
    verdicts = [(i, is_right(i)) for i in items]
    judged = [i for i, right in verdicts if right is not None]
    wrong = [i for i, right in verdicts if right is False] if judged else items
    place = f"{one.file.name}{' ' + name if name else ''}"
    if judged:
        share = round(1 - len(wrong) / len(judged), 4)
        evidence.append(cited(ws, judged[0].row, "eval_result.accuracy", share, f"{len(judged)} items"))
        text.append(f"{place}: {len(judged) - len(wrong)} of {len(judged)} right ({share:.1%})")
    evidence.append(cited(ws, items[0].row, "eval_result.items", len(items)))
    by_reason: dict[str, list[Item]] = defaultdict(list)
    plain = 0
    for item in wrong:
        given = list(dict.fromkeys(reasons(item)))
        plain += not given
        for reason in given:
            by_reason[reason].append(item)
    out = []
    for reason, hit in sorted(by_reason.items(), key=lambda pair: -len(pair[1])):
        text.append(f"  {reason}: {len(hit)} of {len(wrong)} wrong items")
        text += [f"    {_where(i)}: {_shown(i)}" for i in hit[:PRINTED]]
        if len(hit) >= max(2, EVAL_RESULTS_FEW * len(wrong)) or (len(wrong) <= 3 and hit):
            out.append(reason)
            for item in hit[:EVAL_RESULTS_EACH]:
                evidence.append(cited(ws, item.row, f"eval_result.{reason}", round(len(hit) / len(items), 4)))
    text.append(f"  no reason in the record: {plain} of {len(wrong)} wrong items")
    if judged and plain >= max(MANY, len(items) / 2):
        evidence.append(cited(ws, wrong[-1].row, "eval_result.plainly_wrong", round(plain / len(items), 4)))
    stops = Counter(s for i in by_reason.get("stopped_early", []) for s in i.stops)
    if stops:
        text.append(f"  stop strings in force: {', '.join(repr(s) for s, _ in stops.most_common(8))}")
    for key, value, item in together(items):
        out.append(key)
        text.append(f"  {key}: {value}")
        evidence.append(cited(ws, item.row, f"eval_result.{key}", value))
    return out


def _where(item: Item) -> str:
    return f"{item.row.file.name}:{item.row.line.number}" if not item.row.member else item.row.member


def _shown(item: Item) -> str:
    return preview({"gold": item.gold[-80:], "extracted": item.extracted, "output": item.output[-240:]})
