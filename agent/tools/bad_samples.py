"""The records of a step that went wrong."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from .. import deadline
from ..errors import ParseError
from ..reading.datasets.bad_rows import PICTURES_LEFT, broken_pictures, faults_of, held_media, is_loss_log, losses
from ..reading.datasets.find import NUMBERS, matches, sources, unopened
from ..reading.datasets.limits import limits
from ..reading.datasets.media import medium_of
from ..reading.datasets.rows import Fault, Row, Source, cited, place, preview, told
from ..reading.datasets.sampling import Look, look, stream
from ..reading.datasets.step_records import StepRecords, records_of
from ..reading.datasets.tokenizer import tokenizer
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 5  # records shown of one key
SECONDS = 45.0
_FACTS = frozenset({"step", "range", "order", "logged_indices"})
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
            if which.step:
                self.evidence.append(Evidence(key="sample.mapping", kind="absent", value=which.why, searched=[LOG_IT]))
        self.text.append(said)

    def add(self, key: str, evidence: Evidence, place: str) -> None:
        """Count one bad record and keep the first few."""
        self.counts[key] += 1
        if self.counts[key] <= EACH:
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
