"""What rollouts of reinforcement learning show: how old their policy is, whose tokens count, what is rewarded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import mean

import numpy as np

from ...core.types import Evidence, ToolResult
from ...reading.curves.curves import named_series, paired, point_evidence
from ...reading.curves.rollout_rows import policy_ages, rollout_facts
from ...reading.logs import engine_events as ee
from ...reading.run.workspace import Workspace
from ...reading.scan.anchors import Hit, anchored, around
from ..tool import clean, few, finding, listed, not_applicable, tool

OLD = 4  # updates; asynchronous trainers keep within a few
MORE = 1.25  # tokens in the loss over tokens the policy wrote
_IN_LOSS = re.compile(
    r"(?i)(?:^|[/._])(?:num_)?(?:tokens?_in_loss|loss_tokens?|trained_tokens?|tokens?_trained"
    r"|(?:response|loss|action|completion)_mask_(?:sum|tokens?|count)|mask_sum)(?:[/._](?:mean|avg))?$"
)
_OWN = re.compile(
    r"(?i)(?:^|[/._])(?:num_)?(?:generated|sampled|model|policy|assistant|own)_tokens?(?:[/._](?:mean|avg))?$"
)
_PART = re.compile(r"(?i)^(?:train/)?rewards?[/_](?P<name>.+?)(?P<end>[/_]mean)?$")
_NO_PART = re.compile(
    r"(?i)[/_](?:std|min|max|margins?|accuracies|chosen|rejected|mean)$|^(?:mean|std|min|max|total|sum)$"
)


@tool(emits=("rl.version_lag", "rl.loss_tokens_over_own", "rl.mask_over_tool", "rl.right_answer_unrewarded",
             "reward.component_zero"), recall=True)  # fmt: skip
def inspect_rollouts(ws: Workspace) -> ToolResult:
    """Look at rollouts as a run wrote them down: versions of the policy, tokens in the loss, answers and rewards.

    Use when a policy does not improve although its rollouts look right. Tells how many updates old the weights were
    that wrote the rollouts, whether more tokens count in the loss than the policy wrote, whether the mask covers what
    a tool answered, whether right answers get no reward, and which part of a reward never moves.
    """
    evidence = [*_ages(ws), *_tokens(ws), *_rows(ws), *_parts(ws)]
    if not evidence and not any(named_series(ws, re.compile(r"(?i)reward"), b"eward")):
        return not_applicable("no rollouts and no rewards among the run's files")
    if not evidence:
        return clean("rollouts are fresh, masked and rewarded as they should be")
    return finding("; ".join(dict.fromkeys(f"{e.key} = {e.value}" for e in evidence)), evidence)


def _ages(ws: Workspace) -> Iterator[Evidence]:
    for age in policy_ages(ws):
        if age.worst >= OLD:
            yield point_evidence(ws, age.series, age.index, "rl.version_lag", age.worst)


def _tokens(ws: Workspace) -> Iterator[Evidence]:
    own = named_series(ws, _OWN, b"token")
    for counted in named_series(ws, _IN_LOSS, b"ask") + named_series(ws, _IN_LOSS, b"token"):
        for written in own:
            if written.file != counted.file or written.rank != counted.rank:
                continue
            a, b, at = paired(counted, written)
            if len(a) >= 3 and b.min() > 0 and float(np.percentile(a / b, 25)) >= MORE:
                value = round(float(np.median(a / b)), 2)
                yield point_evidence(ws, counted, int(at[-1]), "rl.loss_tokens_over_own", value)
                return


def _rows(ws: Workspace) -> Iterator[Evidence]:
    for fact in rollout_facts(ws):
        yield ws.cite(fact.file, fact.line, fact.key, f"{fact.count} of {fact.of}")


def _parts(ws: Workspace) -> Iterator[Evidence]:
    """A part of the reward that is exactly zero at every step, where the other parts are not."""
    found = [s for s in named_series(ws, _PART, b"eward") if len(s) >= 5 and _name(s.raw)]
    for file in dict.fromkeys(s.file for s in found):
        parts = [s for s in found if s.file == file]
        still = [s for s in parts if not s.values.any()]
        if len(parts) >= 2 and 0 < len(still) < len(parts):
            for s in still[:3]:
                yield point_evidence(ws, s, len(s) - 1, "reward.component_zero", _name(s.raw))


def _name(raw: str) -> str:
    part = _PART.match(raw)
    if part is None or _NO_PART.search(part["name"]) or (not part["end"] and "/" not in raw):
        return ""
    return part["name"]


# ----------
# The rollout engine's side of reinforcement learning: order of calls, deaths, disagreement with the trainer.

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
    text = listed(evidence)
    return finding("; ".join(dict.fromkeys(e.key.split(".")[1].replace("_", " ") for e in evidence)), evidence, text)


def _order(ws: Workspace, calls: list[ee.Event]) -> Iterator[Evidence]:
    if not any(c.kind == "update" for c in calls):
        return
    wrong = ee.updates_while_asleep(calls)
    if wrong:
        asleep, updates = wrong
        order = ", ".join(dict.fromkeys(["sleep", *(_name_engine(u.hit.text) for u in updates)]))
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


def _name_engine(text: str) -> str:
    m = re.search(r"/(\w+)(?:[? \"(]|$)(?!.*/\w+ HTTP)", text)
    found = re.search(r"(start_weight_update|update_weights\w*|update_named_param|load_weights|weight_update)", text)
    return found[1] if found else m[1] if m else "update"


def _lines(ws: Workspace, hits: list[Hit]) -> Iterator[Evidence]:
    said = ((key, value, hit) for hit in _with_neighbours(ws, hits) for key, value in _facts(hit.text))
    for key, value, hit in few(said, EACH, lambda x: x[0]):
        yield hit.cite(ws, key, value)


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
