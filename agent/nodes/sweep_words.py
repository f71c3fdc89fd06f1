"""A sweep in words and as plain data."""

from __future__ import annotations

from typing import Any

from ..redact import Redactor
from ..sanitize import one_line
from .engine import Node
from .sweep import Sweep, line_of
from .sweep_health import Health

SCHEMA = "traindoctor.sweep/1"
PAIRS_SHOWN = 30


def as_data(result: Sweep) -> dict[str, Any]:
    """For other programs."""
    return {
        "schema": SCHEMA,
        "engine": result.engine,
        "level": result.level,
        "verdict": verdict(result),
        "bad": result.bad,
        "links": [{"a": pair.a, "b": pair.b, "why": why} for pair, why in result.links],
        "exclude": sorted(result.bad),
        "not_tested": result.untested,
        "nodes": [_node(result, node, health) for node, health in zip(result.nodes, result.health, strict=True)],
        "pairs": [
            {"a": p.a, "b": p.b, "gbps": p.rate, "wrong": p.wrong, "why": p.why, "backend": p.backend}
            for p in result.pairs
        ],
        "middle_gbps": result.middle,
    }


def _node(result: Sweep, node: Node, health: Health) -> dict[str, Any]:
    found = [{"bad": f.bad, "what": f.what} for f in result.findings if f.node == node.name]
    return {
        "name": node.name,
        "state": node.state,
        "reachable": node.reachable,
        "gpus": len(health.gpus),
        "why": health.why,
        "findings": found,
    }


def verdict(result: Sweep) -> list[str]:
    """The result in a few lines: who is bad, why, and what to do; or that nothing was found."""
    lines = [f"{name} is bad: {'; '.join(reasons[:3])}" for name, reasons in sorted(result.bad.items())]
    if result.bad:
        lines.append(f"leave out: --exclude={','.join(sorted(result.bad))}")
    alone = len(result.health) - len(result.bad) == 2
    for pair, why in result.links:
        which = f"{pair.a}, {pair.b} or the link between them" if alone else f"the link {pair.a} - {pair.b}"
        lines.append(f"{which} is bad: {why}")
    if lines:
        return lines
    if result.blind:
        return [f"no verdict: none of {len(result.pairs)} pairs gave a sound result, which is no single node's doing"]
    good = sum(p.rate is not None for p in result.pairs)
    return [f"nothing found: {len(result.nodes)} nodes answered, {good} of {len(result.pairs)} pairs are sound"]


def in_words(result: Sweep) -> str:
    """What a terminal shows."""
    bad = {finding.node for finding in result.findings if finding.bad} | set(result.bad)
    width = max((len(node.name) for node in result.nodes), default=4)
    lines = []
    for node, health in zip(result.nodes, result.health, strict=True):
        rates = [p.rate for p in result.pairs if node.name in (p.a, p.b) and p.rate is not None]
        tried = sum(node.name in (p.a, p.b) for p in result.pairs)
        shown = f"{len(rates)}/{tried} pairs" + (f", {min(rates):.3g} to {max(rates):.3g} GB/s" if rates else "")
        mark = "bad" if node.name in bad else "ok "
        lines.append(f"{mark}  {node.name:<{width}}  {len(health.gpus)} GPUs  {shown}")
        lines += [f"     {'bad' if f.bad else 'odd'}: {f.what}" for f in result.findings if f.node == node.name]
    if result.bad_pairs:
        lines += ["", "pairs that stand out:", *(f"     {line_of(pair)}" for pair in result.bad_pairs[:PAIRS_SHOWN])]
        if len(result.bad_pairs) > PAIRS_SHOWN:
            lines.append(f"     and {len(result.bad_pairs) - PAIRS_SHOWN} more")
    lines += ["", *verdict(result)]
    lines += [f"not tested: {text}" for text in result.untested]
    redactor = Redactor()
    return "\n".join(one_line(redactor.redact(line)) if line else "" for line in lines)
