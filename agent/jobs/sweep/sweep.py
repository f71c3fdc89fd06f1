"""Which node or link of an allocation is bad: node health first, then every pair that can be tested, then a verdict."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...safety.fences import one_line
from ...safety.redact import Redactor
from ..nodes.engine import Engine, Node
from .sweep_health import Finding, Health, asked, judged
from .sweep_pairs import AGAIN, ALL_ROUNDS, LEVELS, Level, Pair, again, one_machine, rounds, sampled, tested

SLOW = 0.6  # of the usual rate, below which a pair is slow ...
FAR = 5.0  # ... if it is also so many deviations away, or
VERY_SLOW = 0.25  # below this part of it
DEVIATION = 1.4826  # of a normal distribution, by the middle distance from its middle
MOST = 0.75  # of a node's pairs are bad where it is the node, and no link


@dataclass(slots=True)
class Sweep:
    """What a sweep found. `bad` maps a node to its reasons, `links` are bad pairs of good nodes."""

    engine: str
    level: str
    nodes: list[Node]
    health: list[Health] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    bad_pairs: list[Pair] = field(default_factory=list)
    bad: dict[str, list[str]] = field(default_factory=dict)
    links: list[tuple[Pair, str]] = field(default_factory=list)
    untested: list[str] = field(default_factory=list)
    middle: float | None = None  # GB/s of a sound pair

    @property
    def clean(self) -> bool:
        return not self.bad and not self.links

    @property
    def blind(self) -> bool:
        """Pairs were tested, and none gave a sound result."""
        return bool(self.pairs) and all(pair.rate is None or pair.wrong for pair in self.pairs)


def estimate(engine: Engine, nodes: Sequence[Node], level: Level) -> tuple[int, int, float]:
    """Rounds, pairs and seconds that a sound allocation takes."""
    names = [node.name for node in nodes if node.reachable]
    chosen = sampled(rounds(names), len(names)) if len(names) > 1 else []
    count = sum(map(len, chosen))
    return len(chosen), count, 10.0 + (count if one_machine(engine, nodes) else len(chosen)) * level.usual


def sweep(
    engine: Engine, nodes: Sequence[Node], level: str, python: str, told: Callable[[str], None] = lambda _: None
) -> Sweep:
    """Ask, test and judge.

    Args:
        python: interpreter on the nodes; pairs need torch in it.
        told: hears a line about each step.
    """
    result = Sweep(engine.name, level, list(nodes))
    told(f"asking {len(nodes)} nodes about themselves")
    result.health = asked(engine, nodes, python)
    result.findings = judged(nodes, result.health)
    for finding in result.findings:
        if finding.bad:
            result.bad.setdefault(finding.node, []).append(finding.what)
    able = _able(nodes, result)
    if len(able) < 2:
        result.untested.append("no pair of nodes: it takes two that answer and have torch")
        return result
    every = rounds([node.name for node in able])
    chosen = sampled(every, len(able))
    if len(chosen) < len(every):
        left = f"{len(every) - len(chosen)} of {len(every)} rounds of pairs"
        result.untested.append(f"{left}: of more than {ALL_ROUNDS} nodes a sample is tested")
    told(f"testing {sum(map(len, chosen))} pairs in {len(chosen)} rounds")
    result.pairs = tested(engine, able, chosen, LEVELS[level], python, lambda p: told(line_of(p)))
    _clear(result, engine, able, python, told)
    _judge(result)
    return result


def _clear(result: Sweep, engine: Engine, able: Sequence[Node], python: str, told: Callable[[str], None]) -> None:
    """Test again what stands out: what was busy for a moment is no bad link."""
    for turn in range(AGAIN):
        usual, found = slow_pairs(result.pairs)
        # No load explains wrong values; what gave no result costs all of its time: that is tried once more only.
        which = [pair for pair in found if not pair.wrong and (pair.rate is not None or not turn)]
        if not which:
            return
        told(f"testing again: {len(which)} pairs that stand out")
        limit = SLOW * (usual or 0.0)

        def stands_out(pair: Pair, found: dict[Pair, str] = found, limit: float = limit) -> bool:
            return pair in found or pair.rate is None or bool(pair.wrong) or pair.rate < limit

        result.pairs = again(
            engine, able, result.pairs, which, stands_out, LEVELS[result.level], python, lambda p: told(line_of(p))
        )


def line_of(pair: Pair) -> str:
    """A pair in words."""
    return f"{pair.a} - {pair.b}: " + (pair.why if pair.rate is None else f"{pair.rate:.3g} GB/s {pair.why}".rstrip())


def _able(nodes: Sequence[Node], result: Sweep) -> list[Node]:
    """Nodes that can take part in a collective; what the others lack is told."""
    torch = {health.node: bool(health.of("torch").get("there")) for health in result.health if not health.why}
    without = [name for name, there in torch.items() if not there]
    if without:
        result.untested.append(f"pairs with {', '.join(without)}: no torch in its Python (--python names another)")
    gpus = {health.node: len(health.gpus) for health in result.health}
    if any(gpus.values()):
        result.untested.append("GPUs beyond the first of each node take no part in the pairs")
        bare = [node.name for node in nodes if torch.get(node.name) and not gpus[node.name]]
        if bare:  # it would wait for its partner by another backend
            result.untested.append(f"pairs with {', '.join(bare)}: no GPU, as the others have")
        torch = {name: there and bool(gpus[name]) for name, there in torch.items()}
    else:
        result.untested.append("GPUs and their network: the nodes show none, so pairs went through the hosts (Gloo)")
    return [node for node in nodes if torch.get(node.name)]


def slow_pairs(pairs: Sequence[Pair]) -> tuple[float | None, dict[Pair, str]]:
    """The usual rate, and what is wrong with each bad pair: no result, wrong values, or far slower than usual.

    Of four nodes a single bad one spoils half of the pairs, so that the middle pair says nothing: usual is what the
    middle node comes to in its better pairs.
    """
    rates = sorted((pair.rate for pair in pairs if pair.rate is not None), reverse=True)
    found: dict[Pair, str] = {pair: pair.why for pair in pairs if pair.rate is None or pair.wrong}
    if not rates:
        return None, found
    own: dict[str, list[float]] = {}
    for pair in pairs:
        for name in (pair.a, pair.b):
            own.setdefault(name, []).extend([] if pair.rate is None else [pair.rate])
    usual = statistics.median(sorted(mine, reverse=True)[len(mine) // 4] for mine in own.values() if mine)
    if len(rates) < 3:
        return usual, found
    better = rates[: (len(rates) + 1) // 2]
    middle = statistics.median(better)
    spread = statistics.median(abs(rate - middle) for rate in better) * DEVIATION
    for pair in pairs:
        if pair.rate is not None and (
            pair.rate < VERY_SLOW * usual or (pair.rate < SLOW * usual and usual - pair.rate > FAR * spread)
        ):
            found.setdefault(pair, f"{pair.rate:.3g} GB/s where {usual:.3g} is usual")
    return usual, found


def _judge(result: Sweep) -> None:
    result.middle, found = slow_pairs(result.pairs)
    result.bad_pairs = list(found)
    if found and len(found) == len(result.pairs) and len(result.pairs) > 1:
        why = max(set(found.values()), key=list(found.values()).count)
        result.untested.append(
            f"pairs: none of {len(found)} gave a sound result, so the test says nothing of any node ({why})"
        )
        return
    left = dict(found)
    tried = list(result.pairs)
    while left and (culprit := _culprit(left, tried)):
        own = {pair: why for pair, why in left.items() if culprit in (pair.a, pair.b)}
        count = sum(culprit in (pair.a, pair.b) for pair in tried)
        reason = f"in {len(own)} of {count} of its pairs: {next(iter(own.values()))}"
        result.bad.setdefault(culprit, []).append(reason)
        left = {pair: why for pair, why in left.items() if pair not in own}
        tried = [pair for pair in tried if culprit not in (pair.a, pair.b)]
    result.links = [(pair, why) for pair, why in left.items() if not {pair.a, pair.b} & set(result.bad)]


def _culprit(bad: dict[Pair, str], tried: Sequence[Pair]) -> str:
    """The node with the largest share of bad pairs, where that is nearly all of them and at least two."""
    shares = {}
    for name in {name for pair in bad for name in (pair.a, pair.b)}:
        own = [pair for pair in tried if name in (pair.a, pair.b)]
        count = sum(pair in bad for pair in own)
        shares[name] = (count / len(own), count)
    first = max(sorted(shares), key=lambda name: shares[name])
    return first if shares[first][0] >= MOST and shares[first][1] >= 2 else ""


# ----------
# A sweep in words and as plain data.

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
