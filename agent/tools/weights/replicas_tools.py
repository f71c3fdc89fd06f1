"""Replicas that drift apart, or that all see the same data."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...core.types import Evidence, ToolResult
from ...reading.curves.curves import is_binary, line_at
from ...reading.curves.rank_series import RankTable, rank_tables
from ...reading.curves.side_by_side import continuations, disagreements
from ...reading.profiles import numerics as reading
from ...reading.profiles.replicas import Losses, Pair, first_difference, losses, pairs, pairs_left
from ...reading.run.files import Line, RunFile
from ...reading.run.workspace import Workspace
from ...reading.settings.settings import read_settings
from ..tool import clean, failed, finding, not_applicable, tool

SHOWN = 8
SAME = "every rank prints the same loss: it is averaged before it is printed, or all ranks see the same data"

EMITS = (
    "replica.loss_spread_growth", "replica.losses_identical", "replica.loss_apart", "replica.parameters_differ",
    "replica.checkpoint_differs", "replica.checkpoints_equal",
)  # fmt: skip


@tool(emits=EMITS)
def replica_divergence(ws: Workspace) -> ToolResult:
    """Compare data-parallel replicas: losses and parameter sums a rank over the steps, checkpoints a rank.

    Use when training is worse on several devices than on one, results depend on the rank that saves, or a missing
    synchronization, equal data on all ranks or different seeds are suspected. Sums of parameters (param_checksum,
    param_norm) and checkpoints of the same moment must be equal on all replicas; losses must differ a little, as each
    rank sees other samples, and must move together.
    """
    tables = rank_tables(ws, "loss", "parameter_sum", "param_norm")  # each attempt and variant has its own
    compared = list(pairs(ws))
    evidence: list[Evidence] = []
    rows: list[str] = []
    judged = False
    for table in tables:
        if table.metric != "loss":
            evidence += _sums(ws, table)
            rows.append(_sums_row(table))
            judged |= _comparable(table)
        elif (found := losses(table)) is not None:
            judged = True
            evidence += _losses(ws, table, found)
            rows.append(_row(table, found))
    evidence += [e for p in compared for e in _checkpoints(ws, p)]
    rows += [f"{p.one.name} / {p.other.name}: {_told(p)}" for p in compared]
    if left := pairs_left(ws):
        rows.append(f"{left} further pairs of checkpoints were not compared")
    unread = [p for p in compared if p.why]
    if not evidence and not judged:
        if unread:
            return failed(f"{len(unread)} pair(s) of checkpoints could not be compared: {unread[0].why}")
        return not_applicable("no loss or parameter sum of two ranks at common steps, no checkpoints of two replicas")
    wrong = [e for e in evidence if e.key in _FAULTS]
    if wrong:
        return finding("; ".join(dict.fromkeys(_FAULTS[e.key] for e in wrong)), evidence, "\n".join(rows))
    if unread:
        return failed(f"{len(unread)} pair(s) of checkpoints could not be compared: {unread[0].why}")
    same = any(e.key == "replica.losses_identical" for e in evidence)
    return clean(SAME if same else "replicas agree as far as they can be compared", evidence, "\n".join(rows))


@tool(emits=("replica.parameters_differ",), recall=True)
def replica_sums(ws: Workspace) -> ToolResult:
    """Hold the parameter sums and norms that each rank logs of its own replica against those of the others.

    Use whenever ranks log such numbers: replicas that are synchronized have the same at every step, to the last digit.
    Says nothing where the settings split the model over ranks, since each then holds another part of it.
    """
    if split := _split_over_ranks(ws):
        return not_applicable(f"{split} splits the model: ranks hold parts of it, not replicas")
    tables = rank_tables(ws, "parameter_sum", "param_norm")
    if not any(_comparable(table) for table in tables):
        return not_applicable("no parameter sum of two ranks at common steps")
    text = "\n".join(_sums_row(table) for table in tables)
    if evidence := [e for table in tables for e in _sums(ws, table)]:
        return finding(_FAULTS["replica.parameters_differ"], evidence, text)
    return clean("the replicas have equal parameters", text=text)


def _split_over_ranks(ws: Workspace) -> str:
    """The setting under which ranks hold parts of one model; empty where they hold replicas."""
    settings = read_settings(ws)
    for name in ("tensor_parallel", "pipeline_parallel", "expert_parallel"):
        value = settings.value(name)
        if isinstance(value, int) and value > 1:
            return name
    if settings.value("zero_stage") == 3 or settings.value("fsdp_sharding") or settings.value("fsdp"):
        return "sharding"
    return ""


_FAULTS = {
    "replica.parameters_differ": "parameters differ between replicas",
    "replica.checkpoint_differs": "checkpoints of replicas differ",
    "replica.loss_apart": "a rank's loss stays apart from the others'",
    "replica.loss_spread_growth": "losses of the ranks drift apart",
}


def _cite(ws: Workspace, table: RankTable, rank: int, key: str, value: object, row: int = -1) -> Evidence:
    series, at = table.source(rank, row)
    step = int(series.steps[at])
    of = {"rank": rank, "step": step, "attempt": series.attempt, "variant": series.variant}
    if is_binary(series.file):
        text = f"{series.raw} at step {step}: {series.values[at]:.9g}"
        return ws.binary(series.file, series.raw, key, value, text, **of)
    return ws.cite(series.file, line_at(series, at), key, value, **of)


def _losses(ws: Workspace, table: RankTable, found: Losses) -> Iterator[Evidence]:
    first = table.ranks[0]
    if found.identical:
        for rank in table.ranks[:2]:
            yield _cite(ws, table, rank, "replica.losses_identical", True)
        return
    if found.growth > 3 and found.spread > 0.02 and found.together < 0.5:
        yield _cite(ws, table, first, "replica.loss_spread_growth", round(found.growth, 2))
    for rank, off in found.apart[:SHOWN]:
        yield _cite(ws, table, rank, "replica.loss_apart", round(off, 4))


def _sums(ws: Workspace, table: RankTable) -> Iterator[Evidence]:
    found = first_difference(table)
    if found is None or not _comparable(table):
        return
    row, *ranks = found
    for who in ranks:
        series, at = table.source(who, row)
        yield _cite(ws, table, who, "replica.parameters_differ", float(series.values[at]), row)


def _comparable(table: RankTable) -> bool:
    """Norms that differ from the start may be those of parts of a model, not of replicas."""
    found = first_difference(table)
    return found is None or found[0] > 0 or table.metric != "param_norm"


def _sums_row(table: RankTable) -> str:
    found = first_difference(table)
    said = "equal" if found is None else f"different from step {int(table.steps[found[0]])} on"
    return f"{table.metric}: {len(table.ranks)} ranks at {len(table.steps)} steps, {said}"


def _checkpoints(ws: Workspace, pair: Pair) -> Iterator[Evidence]:
    if pair.why:
        return
    if pair.off:
        name, gap = pair.off[0]
        text = f"{len(pair.off)} of {pair.tensors} tensors differ from {pair.one.name}, most of all {name} ({gap:.3g})"
        yield ws.binary(pair.other, name, "replica.checkpoint_differs", round(gap, 9), text)
    else:
        text = f"all {pair.tensors} tensors have the norms and extremes of {pair.one.name}"
        yield ws.binary(pair.other, "", "replica.checkpoints_equal", True, text)


def _row(table: RankTable, found: Losses) -> str:
    return (
        f"loss: {len(table.ranks)} ranks over {found.steps} steps, spread {found.spread:.2%}, grown {found.growth:.2f} "
        f"times, moving together in {found.together:.0%}{', identical' if found.identical else ''}"
    )


def _told(pair: Pair) -> str:
    return pair.why or (f"{len(pair.off)} of {pair.tensors} tensors differ" if pair.off else "equal")


# ----------
# What a run printed about its own numbers: overflow dumps, tensors that never change, rounded sums.

_FILE_LIMIT = 64 << 20
_TELLING = (
    b"abs max", b"absmax", b"tensor(", b"float16", b"exact", b"expected", b"reference", b"returned nan", b"eager",
    b"compile", b"resumed", b"restored", b"reloaded", b"fp32", b"sdpa",
)  # fmt: skip
_BACKWARD = re.compile(rb"Function '?(\w+)'? returned nan values in its (\d+)th output")
_NAMED = re.compile(
    rb"(?i)\b(?:nan|inf|non-?finite)\w*(?:/inf)?(?: values?)? (?:found |detected |encountered |first seen )?"
    rb"(?:in|at|for) (?:the )?(?:module |layer |parameter |param |grad(?:ient)?(?: of)? |output of |tensor )?"
    rb"['\"]?([A-Za-z_][\w]*\.[\w.]+)"
)


@tool(emits=("numerics.*",), recall=True)
def numerics(ws: Workspace) -> ToolResult:
    """Read what the run printed about its own tensors.

    Activation dumps (HF underflow/overflow report), tensors printed before and after training, label batches,
    exact sums beside reduced ones, counters kept in 16 bits, one quantity from two implementations, a continued run
    beside the uninterrupted one, autograd's anomaly detection.
    """
    evidence: list[Evidence] = []
    looked = 0
    for file in ws.by_role("log", "capture", "other", "data", "metrics", "environment"):
        if file.size > _FILE_LIMIT or file.good:
            continue
        if not any(any(t in block for t in _TELLING) for block in ws.blocks(file)):
            continue
        looked += 1
        evidence += _of_file(ws, file)
    if not looked:
        return not_applicable("no activation dump, printed tensor or comparison of sums")
    if not evidence:
        return clean(f"printed tensors in {looked} files look ordinary")
    keys = sorted({e.key for e in evidence})
    return finding(
        f"{', '.join(keys)}", evidence, "\n".join(f"{e.key} = {e.value!r}  {e.file}:{e.line}" for e in evidence)
    )


def _of_file(ws: Workspace, file: RunFile) -> Iterator[Evidence]:
    lines = list(ws.lines(file)) if file.size < 4 << 20 else None

    def again() -> Iterator[Line]:
        return iter(lines) if lines is not None else ws.lines(file)

    yield from _dumps(ws, file, list(reading.dump_rows(again()))[:5000])
    yield from _tensors(ws, file, list(reading.printed_tensors(again()))[:2000])
    for sums in list(reading.compared_sums(again()))[:6]:
        told = {"exact": sums.exact, "reduced": sums.reduced, "rounded_to": sums.rounded}
        yield ws.cite(file, sums.reduced_line, "numerics.exact_vs_reduced", told)
        yield ws.cite(file, sums.exact_line, "numerics.exact_vs_reduced", told)
        if sums.rounded:
            yield ws.cite(file, sums.reduced_line, "numerics.bf16_counter", sums.rounded)
    for name, dtype, line in list(reading.low_precision_counters(again()))[:6]:
        yield ws.cite(file, line, "numerics.low_precision_counter", f"{name} {dtype}")
    for pair in list(disagreements(again()))[:6]:
        told = dict(zip(pair.names, pair.values, strict=True))
        for line in pair.lines:
            yield ws.cite(file, line, "numerics.implementations_differ", told)
    for row in list(continuations(again()))[:3]:
        told = {"step": row.step, "whole": row.whole, "again": row.again}
        key = "numerics.update_differs_after_load" if row.agrees else "numerics.differs_after_load"
        for line in filter(None, (row.agrees, row.parts)):
            yield ws.cite(file, line, key, told)
    yield from _named(ws, file, again())


def _dumps(ws: Workspace, file: RunFile, rows: list[reading.DumpRow]) -> Iterator[Evidence]:
    near, first = reading.overflow(rows)
    for row in near[-4:]:
        yield ws.cite(file, row.line, "numerics.near_fp16_max", row.greatest)
    if first is not None:
        yield ws.cite(file, first.line, "numerics.first_nonfinite_module", first.module or first.tensor)
        if near:
            yield ws.cite(file, first.line, "numerics.fp16_overflow", True)
    grown = reading.growth(rows)
    if grown is not None:
        yield ws.cite(file, grown[1].line, "numerics.activations_grow", round(grown[1].greatest / grown[0].greatest, 1))


def _tensors(ws: Workspace, file: RunFile, printed: list[reading.PrintedTensor]) -> Iterator[Evidence]:
    before: dict[str, reading.PrintedTensor] = {}
    told = 0
    for tensor in printed:
        name = re.split(r"[^\w]+", tensor.label)[-1] if tensor.label else ""
        if name in ("labels", "label", "targets", "target") and tensor.same == -100:
            yield ws.cite(file, tensor.line, "numerics.labels_all_masked", True)
        if tensor.after and tensor.subject in before and told < 8:
            earlier = before[tensor.subject]
            if earlier.text == tensor.text:
                told += 1
                yield ws.cite(file, tensor.line, "numerics.tensor_unchanged", tensor.subject)
                yield ws.cite(file, earlier.line, "numerics.tensor_unchanged", tensor.subject)
                if tensor.same == 0:
                    yield ws.cite(file, tensor.line, "numerics.tensor_zero_after_training", tensor.subject)
            else:
                yield ws.cite(file, tensor.line, "numerics.tensor_changed", tensor.subject)
        elif not tensor.after:
            before.setdefault(tensor.subject, tensor)


def _named(ws: Workspace, file: RunFile, lines: Iterator[Line]) -> Iterator[Evidence]:
    """Autograd's anomaly detection, and the first module that a NaN check names."""
    for line in lines:
        if b"nan" not in line.data.lower() and b"inf" not in line.data.lower():
            continue
        if backward := _BACKWARD.search(line.data):
            yield ws.cite(file, line, "numerics.nan_in_backward", backward[1].decode())
            return
        if named := _NAMED.search(line.data):
            yield ws.cite(file, line, "numerics.first_nonfinite_module", named[1].decode(errors="replace").rstrip("."))
            return
