"""Checkpoints: which there are, whether each is whole, and from which one to go on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from ...core.errors import ToolError
from ...core.types import Evidence, ToolResult
from ...reading.checkpoints.checks.checks import (
    Flaw,
    cut_flaws,
    evidence_of,
    form_flaws,
    name_flaws,
    present,
    wrapped_flaws,
)
from ...reading.checkpoints.checks.checks_config import config_flaws
from ...reading.checkpoints.checks.checks_ranks import layout_flaws, rank_flaws
from ...reading.checkpoints.checks.checks_verdict import Verdict, first_trouble, judged, last_clean, tracker_flaws
from ...reading.checkpoints.layouts import Checkpoint, checkpoints
from ...reading.checkpoints.weights import chosen_checkpoint
from ...reading.logs.load_reports import split_otherwise
from ...reading.run.workspace import Workspace
from ...reading.settings.settings import read_settings
from ..tool import clean, failed, finding, not_applicable, tool

_STARTS, _GOES_ON = (
    re.compile(r"(?i)model|base|init|pretrain|teacher"),
    re.compile(r"(?i)resum|contin|output|save|dir$"),
)
_PER_KEY = 12
_LISTED = 200
_QUICK = 32  # checkpoints of which each file is opened, newest first
_TOLD = 60  # flaws in the text of a list
_SHOWN = 8  # flaws of a checkpoint in the text


@tool(
    emits=(
        "checkpoint.count", "checkpoint.unfinished", "checkpoint.missing_shard", "checkpoint.truncated",
        "checkpoint.empty_file", "checkpoint.tracker_mismatch", "checkpoint.no_optimizer", "checkpoint.no_scheduler",
        "checkpoint.no_rng", "checkpoint.layout_differs", "checkpoint.vocab_mismatch", "checkpoint.shape_mismatch",
        "checkpoint.other_format", "checkpoint.wrapped_keys",
    ),
    recall=True,
)  # fmt: skip
def list_checkpoints(ws: Workspace) -> ToolResult:
    """List the checkpoints of the run, with what names, sizes and headers already tell.

    Framework, step, parts and size of each; unfinished saves, missing and surplus shards, files that are empty or
    cut short, trackers (`latest`) that name nothing, states missing for a resume. No tensor is read;
    `verify_checkpoint` does that.
    """
    held = [c for c in checkpoints(ws) if not c.good]
    if not held:
        return not_applicable("no checkpoints here")
    flaws = list(tracker_flaws(ws, held))
    for number, checkpoint in enumerate(reversed(held)):
        own = [*name_flaws(ws, checkpoint, held), *rank_flaws(ws, checkpoint, held)]
        flaws += [(checkpoint, f) for f in present(ws, checkpoint, own)]
        if number < _QUICK:
            flaws += [(checkpoint, f) for f in (*cut_flaws(checkpoint), *form_flaws(checkpoint))]
    flaws += wrapped_flaws(ws, held)
    flaws += [(held[-1], f) for f in (*layout_flaws(ws, held[-1]), *_shapes(ws, held[-1]))]
    evidence = list_checkpoints.declared([*_count(ws, held), *_capped(ws, _once(flaws))])
    rows = [_row(c) for c in held[-_LISTED:]]
    if len(held) > _LISTED:
        rows.insert(0, f"... {len(held) - _LISTED} older ones")
    told = [f"{c.name}: {f.text}" for c, f in _once(flaws)]
    rows += told[:_TOLD] + ([f"... and {len(told) - _TOLD} more"] if len(told) > _TOLD else [])
    steps = [c.step for c in held if c.step is not None]
    summary = f"{len(held)} checkpoints" + (f", the newest of step {max(steps)}" if steps else "")
    telling = Counter(f.key.removeprefix("checkpoint.") for _, f in _once(flaws))
    if telling:
        words = ", ".join(f"{n} {key.replace('_', ' ')}" for key, n in telling.most_common(6))
        return finding(f"{summary}; {words}", evidence, "\n".join(rows))
    return clean(f"{summary}, nothing missing by names and sizes", evidence, "\n".join(rows))


def _shapes(ws: Workspace, newest: Checkpoint) -> Iterator[Flaw]:
    """Shapes against the config, where short headers tell them all."""
    if all(f.path.suffix == ".safetensors" for f in newest.files.get("model", ())):
        for flaw in config_flaws(ws, newest):
            if flaw.key in ("checkpoint.vocab_mismatch", "checkpoint.shape_mismatch"):
                yield flaw


@tool(emits=("checkpoint.*",))
def verify_checkpoint(
    ws: Workspace,
    path: Annotated[str, Field(description="a checkpoint by name, file or folder; empty: all, newest first")] = "",
    depth: Annotated[
        Literal["full", "structure"], Field(description="full: every byte is read; structure: headers and pickles only")
    ] = "full",
) -> ToolResult:
    """Verify checkpoints: is each one whole, finite and complete, and from which one should training go on

    Structure, checksums, offsets, sizes, missing and surplus shards, unfinished saves; types and shapes against the
    config; NaN, infinite, all-zero, constant and absurdly large tensors; optimizer, scheduler, random and data states
    that are missing or count another step; names in pickles that are no data. Nothing is loaded or executed. Says
    clean, damaged or unknown for each, and which newest one is provably clean and from before the first anomaly.
    """
    held = [c for c in checkpoints(ws) if not c.good]
    if not held:
        return not_applicable("no checkpoints here")
    chosen = held
    if path:
        one = chosen_checkpoint(ws, path)
        if one is None:
            raise ToolError(f"no checkpoint is called {path!r}; there are {', '.join(c.name for c in held[-8:])}")
        chosen = [one]
    verdicts = [judged(ws, c, depth) for c in reversed(chosen)]
    trackers = [(c, f) for c, f in tracker_flaws(ws, held) if c in chosen]
    pairs = [*trackers, *((v.checkpoint, f) for v in verdicts for f in v.flaws)]
    evidence = [*_count(ws, held), *(_verdict(ws, v) for v in verdicts[:_PER_KEY])]
    evidence += _capped(ws, [p for p in pairs if p[1].key != "checkpoint.not_read"])
    evidence += _from_the_start(ws, verdicts)
    rows = [*_told(verdicts), *(f"{c.name}: {f.text}" for c, f in trackers)]
    if not path:
        evidence += _clean(ws, rows) if depth == "full" else []
    return _result(verdicts, trackers, evidence, "\n".join(rows))


def _result(
    verdicts: list[Verdict], trackers: list[tuple[Checkpoint, Flaw]], evidence: list[Evidence], text: str
) -> ToolResult:
    words = Counter(v.word for v in verdicts)
    summary = ", ".join(f"{words[w]} {w}" for w in ("damaged", "unknown", "clean") if words[w])
    if len(verdicts) == 1:
        summary = f"{verdicts[0].checkpoint.name}: {verdicts[0].word}, {verdicts[0].why}"
    telling = trackers or any(f.weight != "unknown" for v in verdicts for f in v.flaws)
    if words["damaged"] or telling:
        return finding(summary, evidence, text)
    if words["unknown"]:
        result = failed(summary)
        result.evidence, result.text = evidence, text
        return result
    return clean(summary, evidence, text)


def _clean(ws: Workspace, rows: list[str]) -> list[Evidence]:
    """The newest checkpoint that is provably clean and from before the first anomaly."""
    trouble = first_trouble(ws)
    found = last_clean(ws)
    before = f" before {trouble.key} at step {trouble.step}" if trouble is not None else ""
    if found is None:
        rows.append(f"no checkpoint{before} is provably clean")
        names = [c.name for c in checkpoints(ws)][-_PER_KEY:]
        return [Evidence(key="checkpoint.last_clean", kind="absent", value=None, text=rows[-1], searched=names)]
    checkpoint = found.verdict.checkpoint
    rows.append(f"newest provably clean checkpoint{before}: {checkpoint.name}; {found.verdict.why}")
    file = checkpoint.tensor_files[0]
    return [ws.binary(file, checkpoint.name, "checkpoint.last_clean", checkpoint.name, rows[-1], step=checkpoint.step)]


def _from_the_start(ws: Workspace, verdicts: list[Verdict]) -> Iterator[Evidence]:
    """Saves that are not finite though the curves are not yet in trouble at their step: the save is the origin."""
    trouble = first_trouble(ws)
    for verdict in verdicts:
        checkpoint = verdict.checkpoint
        early = trouble is None or (checkpoint.step is not None and checkpoint.step < (trouble.step or 0))
        flaw = next((f for f in verdict.flaws if f.key == "checkpoint.nonfinite"), None)
        if flaw is not None and early:
            until = f"before {trouble.key} at step {trouble.step}" if trouble else "no curve tells of trouble"
            text = f"{flaw.text}; {until}"
            yield evidence_of(ws, checkpoint, replace(flaw, key="checkpoint.nonfinite_first", text=text))


def _told(verdicts: list[Verdict]) -> Iterator[str]:
    for verdict in verdicts:
        yield f"{verdict.checkpoint.name}: {verdict.word}: {verdict.why}"
        rest = [f for f in verdict.flaws if f.text != verdict.why]
        yield from (f"  {f.key.removeprefix('checkpoint.')}: {f.text}" for f in rest[:_SHOWN])
        if len(rest) > _SHOWN:
            yield f"  ... and {len(rest) - _SHOWN} more"


def _verdict(ws: Workspace, verdict: Verdict) -> Evidence:
    checkpoint = verdict.checkpoint
    text = f"{checkpoint.name}: {verdict.word}: {verdict.why}"
    file = checkpoint.tensor_files[0]
    return ws.binary(file, checkpoint.name, "checkpoint.verdict", verdict.word, text, step=checkpoint.step)


def _count(ws: Workspace, held: list[Checkpoint]) -> Iterator[Evidence]:
    """How many saves there are, without the models that a setting names to start from."""
    named = [(s.key, s.value.rstrip("/")) for s in read_settings(ws).all if isinstance(s.value, str) and s.value]
    begun = {path.removeprefix("./") for key, path in named if _STARTS.search(key) and not _GOES_ON.search(key)}
    own = [c for c in held if c.name not in begun]
    if own:
        text = f"{len(own)} checkpoints: {', '.join(c.name for c in own[-_PER_KEY:])}"
        yield ws.binary(own[-1].all[0], own[-1].name, "checkpoint.count", len(own), text)


def _capped(ws: Workspace, flaws: Iterable[tuple[Checkpoint, Flaw]]) -> Iterator[Evidence]:
    counts: Counter[str] = Counter()
    for checkpoint, flaw in flaws:
        counts[flaw.key] += 1
        if counts[flaw.key] <= _PER_KEY:
            yield evidence_of(ws, checkpoint, flaw)


def _once(flaws: list[tuple[Checkpoint, Flaw]]) -> list[tuple[Checkpoint, Flaw]]:
    """The same thing said by two checks, once."""
    seen: dict[tuple[str, str, str], tuple[Checkpoint, Flaw]] = {}
    for checkpoint, flaw in flaws:
        about = flaw.member.rsplit("/", 1)[-1] or (flaw.file.name if flaw.file else flaw.text)
        seen.setdefault((checkpoint.name, flaw.key, about), (checkpoint, flaw))
    return list(seen.values())


def _row(checkpoint: Checkpoint) -> str:
    parts = " ".join(f"{part}:{len(files)}" for part, files in checkpoint.files.items())
    step = "" if checkpoint.step is None else f" step {checkpoint.step}"
    return f"{checkpoint.name} ({checkpoint.framework}{step}, {checkpoint.size} bytes) {parts}"


# ----------
# Whether shapes differ on loading because the checkpoint was cut into another number of parts.


@tool(emits=("checkpoint.split_otherwise",), recall=True)
def split_tensors(ws: Workspace) -> ToolResult:
    """Tell a change of the parallel layout from a change of the model, where load_state_dict says size mismatch.

    Use when shapes differ on loading and files of model-parallel ranks (mp_rank_00, consolidated.00.pth) lie there.
    All mismatched tensors must differ by the one factor that the number of parts on disk and the number of parts now
    explain.
    """
    found = split_otherwise(ws)
    if found is None:
        return clean("no mismatch of shapes that another number of parts explains")
    value = f"{found.saved} parts on disk, {found.built} now"
    evidence = [ws.cite(file, line, "checkpoint.split_otherwise", value) for file, line in found.lines]
    text = f"{found.part.name} is one of {found.saved} parts"
    evidence.append(ws.binary(found.part, "", "checkpoint.split_otherwise", value, text))
    return finding(f"the checkpoint holds tensors in {value}", evidence)
