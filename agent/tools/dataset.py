"""Whole datasets: what is wrong with them, and what their records look like."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import Field

from ..errors import ToolError
from ..reading.datasets import choice
from ..reading.datasets.find import NUMBERS, sources, unopened
from ..reading.datasets.inspection import Findings, inspect_rows, inspect_tokens
from ..reading.datasets.limits import limits
from ..reading.datasets.overlap import held_out, shared
from ..reading.datasets.rows import Row, Source, cited, place, preview
from ..reading.datasets.sampling import COST, Look, look
from ..reading.datasets.tokenizer import tokenizer
from ..tool import clean, finding, not_applicable, tool
from ..types import ToolResult
from ..workspace import Workspace

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
    picked = choice.picked(rows, where, count, seed)
    if not rows and unread:
        return ToolResult("failed", f"no record could be read: {unread[0]}", [], "\n".join(unread))
    if not picked:
        return not_applicable(f"no record is {where} among {len(rows)} that were read")
    shown = [f"{place(r)}: {preview(r.fields, CUT)}" for r in picked]
    evidence = [cited(ws, r, "data.shown", r.number) for r in picked]
    summary = f"{len(picked)} records ({where}) of {len(rows)} read of {seen} in {len(chosen)} files"
    return finding(summary, evidence, "\n".join([summary, *shown]))
