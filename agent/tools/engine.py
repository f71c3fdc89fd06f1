"""The rollout engine's side of reinforcement learning: order of calls, deaths, disagreement with the trainer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import mean

from ..reading import engine_events as ee
from ..reading.anchor_lines import Hit, anchored
from ..reading.anchor_windows import around
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

EACH = 4
RUNNING = re.compile(r"#running-req: (\d+)|Running: (\d+) reqs")
ENGINE_NAME = re.compile(
    r"^\(?(\w*(?:Engine|Server|Worker)\w*(?: pid=\d+)?(?:, ip=[\d.]+)?)|(?:port|engine)[ =:]?(\d+)"
)


@tool(
    emits=(
        "rl.event_order", "rl.asleep_during_update", "rl.engine_slept_before_update", "rl.engine_dead",
        "rl.update_timeout", "rl.decode_prefill_disagree", "rl.prefill_agrees", "rl.logprob_outliers",
        "rl.router_skew", "rl.prefix_cache_not_reset", "rl.update_groups_differ",
    ),
    recall=True,
)  # fmt: skip
def engine_events(ws: Workspace) -> ToolResult:
    """Follow the calls between trainer and rollout engine (sleep, wake up, weight update, cache reset).

    Use when the engine dies or hangs on a weight update, when rollouts do not follow the training, or when
    log-probabilities differ between engine and trainer. Reads server and trainer logs.
    """
    hits = anchored(ws).of("engine")
    by_file: dict[str, list[Hit]] = {}
    for hit in hits:
        by_file.setdefault(hit.file.name, []).append(hit)
    evidence = [e for group in by_file.values() for e in _order(ws, ee.events(group))]
    evidence += [*_lines(ws, hits), *_skew(ws, hits), *_groups(ws, hits)]
    if not hits:
        return not_applicable("no rollout engine in the run's logs")
    if not evidence:
        return clean("no fault in the calls to the rollout engine")
    text = "\n".join(f"{e.file}:{e.line} {e.key} = {e.value}" for e in evidence)
    return finding("; ".join(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in evidence)), evidence, text)


def _order(ws: Workspace, calls: list[ee.Event]) -> Iterator[Evidence]:
    if not any(c.kind == "update" for c in calls):
        return
    wrong = ee.updates_while_asleep(calls)
    if wrong:
        asleep, updates = wrong
        order = ", ".join(dict.fromkeys(["sleep", *(_name(u.hit.text) for u in updates)]))
        last = updates[-1].hit
        yield ws.cite(last.file, last.line, "rl.event_order", order)
        for call in [*asleep[-2:], *updates]:
            yield ws.cite(call.hit.file, call.hit.line, "rl.asleep_during_update", True)
        yield ws.cite(asleep[-1].hit.file, asleep[-1].hit.line, "rl.engine_slept_before_update", True)
    if not {"reset", "sleep"} & {c.kind for c in calls} and any(c.kind == "generate" for c in calls):
        update = next(c for c in calls if c.kind == "update").hit
        yield ws.cite(update.file, update.line, "rl.prefix_cache_not_reset", True)


def _groups(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    """Engines that wait in different groups for weight updates while none of the groups is formed."""
    joins = [(h, m["group"]) for h in hits if (m := ee.JOINS.search(h.text))]
    joined: dict[str, set[str]] = {}
    for hit, group in joins:
        joined.setdefault(_engine(hit), set()).add(group)
    apart = {frozenset(groups) for groups in joined.values()}
    failed = [h for h in hits if ee.NOT_FORMED.search(h.text)]
    if failed and len(apart) > 1 and not frozenset.intersection(*apart):
        shown: set[str] = set()
        for hit, group in joins:
            if group not in shown:
                shown.add(group)
                yield ws.cite(hit.file, hit.line, "rl.update_groups_differ", group)
        for hit in failed[:2]:
            yield ws.cite(hit.file, hit.line, "rl.update_timeout", hit.text.strip()[:200])


def _engine(hit: Hit) -> str:
    name = ENGINE_NAME.search(hit.text)
    return next((g for g in name.groups() if g), hit.file.name) if name else hit.file.name


def _name(text: str) -> str:
    m = re.search(r"/(\w+)(?:[? \"(]|$)(?!.*/\w+ HTTP)", text)
    found = re.search(r"(start_weight_update|update_weights\w*|update_named_param|load_weights|weight_update)", text)
    return found[1] if found else m[1] if m else "update"


def _lines(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    shown: dict[str, int] = {}
    for hit in _with_neighbours(ws, hits):
        for key, value in _facts(hit.text):
            shown[key] = shown.get(key, 0) + 1
            if shown[key] <= EACH:
                yield ws.cite(hit.file, hit.line, key, value, rank=hit.rank)


def _with_neighbours(ws: Workspace, hits: list[Hit]) -> Iterator[Hit]:
    """A table that compares engine and trainer: rows that agree stand beside the one that does not."""
    seen: set[tuple[str, int]] = set()
    for hit in hits:
        near = around(ws, hit, 600, 600) if ee.COMPARED.search(hit.text) else [hit.line]
        for line in near:
            if (hit.file.name, line.number) not in seen and (line is hit.line or ee.COMPARED.search(line.text)):
                seen.add((hit.file.name, line.number))
                yield Hit(hit.file, line, hit.topic)


def _facts(text: str) -> Iterator[tuple[str, str | bool | float]]:
    if ee.DEAD.search(text):
        yield "rl.engine_dead", text.strip()[:200]
    if ee.TIMED_OUT.search(text):
        yield "rl.update_timeout", text.strip()[:200]
    if m := ee.COMPARED.search(text):
        differs = bool(ee.DIVERGED.search(text))
        same_engine = m["a"].lower() == m["b"].lower()
        if same_engine and m["apart"].lower() != m["bpart"].lower() and differs:
            yield "rl.decode_prefill_disagree", float(m["value"])
        elif not same_engine and m["apart"].lower() == m["bpart"].lower() and not differs:
            yield "rl.prefill_agrees", float(m["value"])
    if (m := ee.OUTLIERS.search(text)) and int(m[1]):
        yield "rl.logprob_outliers", f"{m[1]} of {m[2]}"


def _skew(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    """Mean number of running requests by engine: three times the mean of the others is a skewed router."""
    running: dict[str, list[tuple[int, Hit]]] = {}
    for hit in hits:
        if (m := RUNNING.search(hit.text)) and (name := ENGINE_NAME.search(hit.text)):
            count = int(next(g for g in m.groups() if g))
            running.setdefault(next(g for g in name.groups() if g), []).append((count, hit))
    means = {name: mean(n for n, _ in found) for name, found in running.items() if len(found) >= 3}
    if len(means) < 2:
        return
    busiest = max(means, key=lambda n: means[n])
    others = mean(v for n, v in means.items() if n != busiest)
    if means[busiest] >= 4 and means[busiest] > 3 * max(others, 0.5):
        hit = max(running[busiest], key=lambda x: x[0])[1]
        yield ws.cite(hit.file, hit.line, "rl.router_skew", round(means[busiest] / max(others, 0.5), 2))
