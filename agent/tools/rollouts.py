"""What rollouts of reinforcement learning show: how old their policy is, whose tokens count, what is rewarded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from ..reading.named_series import named_series, paired
from ..reading.points import point_evidence
from ..reading.policy_age import policy_ages
from ..reading.rollout_rows import rollout_facts
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

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
