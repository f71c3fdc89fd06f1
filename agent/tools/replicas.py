"""Replicas that drift apart, or that all see the same data."""

from __future__ import annotations

from collections.abc import Iterator

from ..reading.curves import is_binary, line_at
from ..reading.rank_series import RankTable, rank_tables
from ..reading.replicas import Losses, Pair, first_difference, losses, pairs, pairs_left
from ..reading.settings import read_settings
from ..tool import clean, failed, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

SHOWN = 8
SAME = "every rank prints the same loss: it is averaged before it is printed, or all ranks see the same data"

EMITS = (
    "replica.ranks", "replica.loss_spread", "replica.loss_spread_growth", "replica.losses_together",
    "replica.losses_identical", "replica.loss_apart", "replica.parameters_differ", "replica.parameters_equal",
    "replica.differ_from_step", "replica.checkpoint_differs", "replica.checkpoints_equal",
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
    for table in tables:
        if table.metric != "loss":
            evidence += _sums(ws, table)
            rows.append(f"{table.metric}: {len(table.ranks)} ranks at {len(table.steps)} steps")
        elif (found := losses(table)) is not None:
            evidence += _losses(ws, table, found)
            rows.append(_row(table, found))
    evidence += [e for p in compared for e in _checkpoints(ws, p)]
    rows += [f"{p.one.name} / {p.other.name}: {_told(p)}" for p in compared]
    if left := pairs_left(ws):
        rows.append(f"{left} further pairs of checkpoints were not compared")
    unread = [p for p in compared if p.why]
    if not evidence:
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


@tool(emits=("replica.parameters_differ", "replica.parameters_equal", "replica.differ_from_step"), recall=True)
def replica_sums(ws: Workspace) -> ToolResult:
    """Hold the parameter sums and norms that each rank logs of its own replica against those of the others.

    Use whenever ranks log such numbers: replicas that are synchronized have the same at every step, to the last digit.
    Says nothing where the settings split the model over ranks, since each then holds another part of it.
    """
    if split := _split_over_ranks(ws):
        return not_applicable(f"{split} splits the model: ranks hold parts of it, not replicas")
    tables = rank_tables(ws, "parameter_sum", "param_norm")
    evidence = [e for table in tables for e in _sums(ws, table)]
    if not evidence:
        return not_applicable("no parameter sum of two ranks at common steps")
    rows = [f"{t.metric}: {len(t.ranks)} ranks at {len(t.steps)} steps" for t in tables]
    if any(e.key == "replica.parameters_differ" for e in evidence):
        return finding(_FAULTS["replica.parameters_differ"], evidence, "\n".join(rows))
    return clean("the replicas have equal parameters", evidence, "\n".join(rows))


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
    yield _cite(ws, table, first, "replica.ranks", len(table.ranks))
    yield _cite(ws, table, first, "replica.loss_spread", round(found.spread, 5))
    if found.identical:
        for rank in table.ranks[:2]:
            yield _cite(ws, table, rank, "replica.losses_identical", True)
        return
    yield _cite(ws, table, first, "replica.losses_together", round(found.together, 3))
    if found.growth > 3 and found.spread > 0.02 and found.together < 0.5:
        yield _cite(ws, table, first, "replica.loss_spread_growth", round(found.growth, 2))
    for rank, off in found.apart[:SHOWN]:
        yield _cite(ws, table, rank, "replica.loss_apart", round(off, 4))


def _sums(ws: Workspace, table: RankTable) -> Iterator[Evidence]:
    found = first_difference(table)
    if found is None:
        yield _cite(ws, table, table.ranks[0], "replica.parameters_equal", True)
        return
    row, rank, other = found
    if row == 0 and table.metric == "param_norm":
        return  # norms that differ from the start may be those of parts of a model, not of replicas
    for who in (rank, other):
        series, at = table.source(who, row)
        yield _cite(ws, table, who, "replica.parameters_differ", float(series.values[at]), row)
    yield _cite(ws, table, rank, "replica.differ_from_step", int(table.steps[row]), row)


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
