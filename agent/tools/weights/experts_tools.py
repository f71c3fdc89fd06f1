"""Experts of a mixture: who is used, who learns, what the router does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...core.types import Evidence, ToolResult
from ...reading.checkpoints.experts import Mixture, layer_findings, mixtures, router_findings, shown, silent_experts
from ...reading.checkpoints.layouts import Checkpoint, checkpoints
from ...reading.checkpoints.moments import optimizer_of
from ...reading.checkpoints.optimizer_health import Told
from ...reading.checkpoints.weights import Weights, weights_of
from ...reading.curves.curves import curves
from ...reading.profiles.expert_loads import Balance, Load, balances, printed_loads, row_loads, series_loads
from ...reading.profiles.gradients import Gradient, curve_gradients, recorded_gradients
from ...reading.run.workspace import Workspace
from ..tool import clean, finding, not_applicable, tool

_SHOWN = 12  # evidence of one key
_BYTES = 48 << 30  # of expert weights read at most; further layers are passed over and counted
_ROUTER = re.compile(
    r"(?i)(?:^|[._/])(?:routers?|gating|(?:moe|mixture|ffn|mlp|block_sparse_moe)[._/]gate|gate_network)(?:[./]|_(?:weight|kernel)\b|$)"
)
_STEPS = 2  # recorded ones from which a gradient that never came is no accident
_CV, _MOST = 0.8, 3.0  # balance beyond which a layer is called uneven
_FACTS = {"expert.imbalance_cv", "expert.max_over_mean", "expert.bias_spread", "expert.norm_spread", "expert.count"}


@tool(emits=("expert.*",))
def expert_usage(ws: Workspace) -> ToolResult:
    """Look at the experts of a mixture: balance, dead and identical experts, the router.

    Use for mixture-of-experts models that learn badly, run slowly or unevenly. Reads tokens per expert from logs and
    metrics, and from checkpoints: experts that are bit-identical to each other, that never changed between two
    checkpoints or have no gradient in the optimizer; routers that stand still, grow, collapse or are not finite;
    the spread of balancing biases.
    """
    loads = balances([*printed_loads(ws), *row_loads(ws), *series_loads(curves(ws))])
    held = [c for c in checkpoints(ws) if not c.good]
    pairs = _mixed(ws, held)
    if not loads and not pairs:
        return not_applicable("no experts in any checkpoint, and no log or metric that counts tokens per expert")
    evidence = [*_load_evidence(ws, loads)]
    told: list[Told] = []
    passed_over = 0
    if pairs:
        told, passed_over = _checkpoint_facts(ws, pairs)
        evidence += [ws.binary(t.file, t.member, t.key, t.value, t.text) for t in shown(told, _SHOWN)]
    telling = sorted({e.key for e in evidence if e.key not in _FACTS} | _uneven(loads))
    text = "\n".join([*(b.text for b in loads[:32]), *(t.text for t in shown(told, _SHOWN))])
    where = f"{len(loads)} layers in logs" if loads else ""
    inside = f"{len(pairs[-1][2])} layers with experts in {pairs[-1][0].name}" if pairs else ""
    summary = "; ".join(x for x in (where, inside) if x)
    if passed_over:
        summary += f"; {passed_over} layers were not read, for their size"
    if telling:
        return finding(f"{summary}: {', '.join(k.removeprefix('expert.') for k in telling)}", evidence, text)
    if passed_over or (pairs and not all(w.readable for _, w, _ in pairs)):
        return ToolResult("failed", f"{summary}; not all could be read", evidence, text)
    return clean(f"{summary}: used and trained evenly", evidence, text)


@tool(emits=("expert.imbalance_cv", "expert.max_over_mean", "expert.dead", "expert.router_no_gradient"), recall=True)
def expert_balance(ws: Workspace) -> ToolResult:
    """Say how evenly a mixture's experts are used, and whether its router learns, by what the run logged.

    Use for any mixture of experts: reads the loads that logs, tables and JSON lines give for each expert and layer, and
    the gradient norms kept for each part of the model. Opens no checkpoint.
    """
    loads = balances([*printed_loads(ws), *row_loads(ws), *series_loads(curves(ws))])
    routers = _routers(ws)
    if not loads and not routers:
        return not_applicable("no loads of experts and no gradients of a router in logs or metrics")
    evidence = [*_load_evidence(ws, loads, shown=1)]
    for g in routers:
        if g.line is not None and g.steps >= _STEPS and g.zeros == g.steps:
            evidence.append(ws.cite(g.file, g.line, "expert.router_no_gradient", g.name, step=g.step))
    text = "\n".join(b.text for b in loads[:32])
    if _uneven(loads) or any(e.key in ("expert.dead", "expert.router_no_gradient") for e in evidence):
        return finding("; ".join(dict.fromkeys(f"{e.key} = {e.value}" for e in evidence[:4])), evidence, text)
    return clean(f"{len(loads)} layers are used evenly", evidence, text)


def _routers(ws: Workspace) -> list[Gradient]:
    """Gradients of routers, where those of other parts were kept beside them and are not zero."""
    found = []
    for source in [*recorded_gradients(ws), *curve_gradients(ws, curves(ws))]:
        if any(g.zeros < g.steps for g in source.gradients):
            found += [g for g in source.gradients if _ROUTER.search(g.name)]
    return found


def _mixed(ws: Workspace, held: list[Checkpoint]) -> list[tuple[Checkpoint, Weights, list[Mixture]]]:
    """The oldest and the newest checkpoint that hold experts."""
    found = []
    for order in (held, reversed(held)):
        for checkpoint in order:
            weights = weights_of(ws, checkpoint)
            layers = mixtures(weights)
            if layers:
                if not found or found[0][0] is not checkpoint:
                    found.append((checkpoint, weights, layers))
                break
    return found


def _checkpoint_facts(ws: Workspace, pairs: list[tuple[Checkpoint, Weights, list[Mixture]]]) -> tuple[list[Told], int]:
    checkpoint, weights, layers = pairs[-1]
    earlier = {m.layer: m for m in pairs[0][2]} if len(pairs) > 1 else {}
    told: list[Told] = []
    read = 0
    passed_over = 0
    for mixture in layers:
        size = sum(p.size * 4 for parts in mixture.experts.values() for p in parts.values())
        if read + size > _BYTES:
            passed_over += 1
        else:
            read += size * (2 if earlier else 1)
            told += layer_findings(ws, mixture, earlier.get(mixture.layer))
        told += router_findings(ws, mixture, earlier.get(mixture.layer))
    told += silent_experts(ws, optimizer_of(ws, checkpoint, weights), layers)
    return told, passed_over


def _uneven(loads: list[Balance]) -> set[str]:
    return {"expert.imbalance_cv" for b in loads if b.cv > _CV or b.most > _MOST}


def _load_evidence(ws: Workspace, loads: list[Balance], shown: int = 3) -> Iterator[Evidence]:
    """The least even layers, and every expert that got nothing."""
    for b in sorted(loads, key=lambda b: -b.cv)[:shown]:
        yield _at(ws, b.last, "expert.imbalance_cv", round(b.cv, 4), b.text)
        yield _at(ws, b.last, "expert.max_over_mean", round(b.most, 3), b.text)
    for b in [b for b in loads if b.dead][:_SHOWN]:
        yield _at(ws, b.last, "expert.dead", len(b.dead), b.text)


def _at(ws: Workspace, load: Load, key: str, value: float | int, text: str) -> Evidence:
    if load.line.number:
        return ws.cite(load.file, load.line, key, value, rank=load.rank, step=load.step)
    return ws.binary(load.file, load.layer, key, value, text, rank=load.rank, step=load.step)
