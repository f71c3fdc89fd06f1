"""Rollouts that a run wrote down, a row each: whose tokens the mask counts, and which right answers got nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..run.files import Line, RunFile
from .curves import named_series, paired
from .series import Series

if TYPE_CHECKING:
    from ..run.workspace import Workspace

_ROWS = 2000  # of one file
_BYTES = 8 << 20
_MASK = re.compile(r"(?i)mask$|^is_model|^trainable$")
_NO_LOSS_MASK = re.compile(r"(?i)attention|pad|position")
_TOKENS = re.compile(r"(?i)^(?:\w+_)?(?:tokens?|pieces)(?:_text|_str)?$")
# What stands before words of the environment in the common templates; `<tool_call>` is the model's own.
_FOREIGN = re.compile(
    r"(?i)^[<\[|(\s▁Ġ]*(?:tool|tool[_ ]?(?:response|result|output)s?|observation|obs|environment|env|information"
    r"|ipython|interpreter|(?:code|execution|search)[_ ](?:output|result)s?)[>\]|):\s]*$"
)
_TEXT = re.compile(r"(?i)completion|response|output|generation|prediction|rollout|answer_text|^text$")
_REWARD = re.compile(
    r"(?i)^(?:accuracy_|correctness_|task_|mean_|total_)?(?:rewards?|scores?|correct|accuracy)(?:[/_.]\w+)?$"
)
_TRUTH = re.compile(r"(?i)answer|label|target|gold|truth|reference|solution|expected|sum|result|value")
_LAST = re.compile(r"-?\d[\d,]*(?:\.\d+)?|[^\s.:,;!?*$\"'`]+")
_FEWEST = 3


@dataclass(frozen=True, slots=True)
class RolloutFact:
    """Something that the rows of a file show, at the first row that shows it; `count` of `of` rows do."""

    key: str
    file: RunFile
    line: Line
    count: int
    of: int


def rollout_facts(ws: Workspace) -> list[RolloutFact]:
    """What the rollouts written down show, file by file."""
    found: list[RolloutFact] = []
    for file in ws.by_role("metrics", "data", "other"):
        if file.good or ".json" not in file.path.name:
            continue
        start = ws.head(file)
        if not start.lstrip().startswith(b"{") or not (b"mask" in start or b"eward" in start or b"core" in start):
            continue
        rows = list(_rows(ws, file))
        found += [f for f in (_masked(file, rows), _unrewarded(file, rows)) if f is not None]
    return found


def _rows(ws: Workspace, file: RunFile) -> Iterator[tuple[Line, dict[str, Any]]]:
    read = 0
    for line in ws.lines(file):
        read += len(line.data)
        if line.number > _ROWS or read > _BYTES:
            return
        try:
            row = json.loads(line.data)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield line, row


def _masked(file: RunFile, rows: list[tuple[Line, dict[str, Any]]]) -> RolloutFact | None:
    """Rows in which words that a tool or an environment wrote are counted by the mask of the loss."""
    judged = [(line, v) for line, row in rows if (v := counts_foreign(row)) is not None]
    wrong = [line for line, v in judged if v]
    if len(wrong) < _FEWEST or len(wrong) < 0.8 * len(judged):
        return None
    return RolloutFact("rl.mask_over_tool", file, wrong[0], len(wrong), len(judged))


def counts_foreign(row: dict[str, Any]) -> bool | None:
    """Whether the mask is one over what follows the mark of a tool; None where the row has no such mark or no mask."""
    masks = [v for k, v in row.items() if _MASK.search(k) and not _NO_LOSS_MASK.search(k) and _flags(v)]
    tokens = [
        v for k, v in row.items() if _TOKENS.match(k) and isinstance(v, list) and all(isinstance(t, str) for t in v)
    ]
    if len(masks) != 1 or len(tokens) != 1 or len(masks[0]) != len(tokens[0]):
        return None
    marks = [i for i, t in enumerate(tokens[0][:-2]) if _FOREIGN.match(t)]
    return all(masks[0][i + 1] and masks[0][i + 2] for i in marks) if marks else None


def _flags(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 2 and all(v in (0, 1) for v in value)


def _unrewarded(file: RunFile, rows: list[tuple[Line, dict[str, Any]]]) -> RolloutFact | None:
    """Completions that end in the right answer and got no more than the wrong ones, in every row."""
    right: list[tuple[Line, float]] = []
    rewards: list[float] = []
    for line, row in rows:
        judged = ends_right(row)
        if judged is None:
            continue
        rewards.append(judged[1])
        if judged[0]:
            right.append((line, judged[1]))
    if len(right) < _FEWEST or not rewards or max(r for _, r in right) > 0 or max(rewards) > 0:
        return None
    return RolloutFact("rl.right_answer_unrewarded", file, right[0][0], len(right), len(rewards))


def ends_right(row: dict[str, Any]) -> tuple[bool, float] | None:
    """Whether the completion of a row ends in its own answer, and its reward; None where the row has not all three."""
    texts = [v for k, v in row.items() if _TEXT.search(k) and isinstance(v, str)]
    rewards = [float(v) for k, v in row.items() if _REWARD.match(k) and isinstance(v, int | float)]
    truths = [
        str(v).strip()
        for k, v in row.items()
        if _TRUTH.search(k) and not _REWARD.match(k) and isinstance(v, int | float | str) and not isinstance(v, bool)
    ]
    if (
        len(texts) != 1
        or len(rewards) != 1
        or not (truths := [t for t in truths if t and t != texts[0] and len(t) < 40])
    ):
        return None
    words = _LAST.findall(texts[0])
    last = words[-1].replace(",", "") if words else ""
    return any(_same(last, t) for t in truths), rewards[0]


def _same(a: str, b: str) -> bool:
    try:
        return float(a) == float(b)
    except ValueError:
        return a.lower() == b.lower()


# ----------
# How many updates old the policy was that wrote the rollouts, by the versions that a run prints.

_VERSION = re.compile(
    r"(?i)(?:^|[/._])(?P<who>[a-z_]*?)_?(?:weights?_|policy_|model_|params?_)?versions?(?:[/._](?:mean|avg))?$"
)
_WRITER = re.compile(r"(?i)rollout|actor|generat|sampl|worker|behaviou?r|engine|infer|vllm|sglang|collect|explor")
_LEARNER = re.compile(r"(?i)learner|train|update|current|latest|global|^policy$|^$")
_AGE = re.compile(
    r"(?i)(?:^|[/._])(?:staleness|(?:version|policy|weights?|params?|off_?policy)_?(?:lag|gap|age|staleness|delay))"
    r"(?:[/._](?:mean|avg|max))?$"
)
_POLICY_AGE_FEWEST = 3  # points


@dataclass(frozen=True, slots=True)
class PolicyAge:
    """Updates between the weights that wrote the rollouts and those that learn of them, at the worst point."""

    series: Series
    index: int
    worst: float
    middle: float


def policy_ages(ws: Workspace) -> list[PolicyAge]:
    """The age of the rollouts' policy, printed as such or as two versions of one file."""
    found = [_age(s, s.values, np.arange(len(s))) for s in named_series(ws, _AGE, b"")]
    versions = named_series(ws, _VERSION, b"ersion")
    writers = [s for s in versions if _WRITER.search(_who(s))]
    learners = [s for s in versions if s not in writers and _LEARNER.search(_who(s))]
    for writer in writers:
        for learner in learners:
            if writer.file == learner.file and writer.rank == learner.rank:
                old, new, at = paired(writer, learner)
                found.append(_age(writer, new - old, at))
    return [age for age in found if age is not None]


def _who(s: Series) -> str:
    match = _VERSION.search(s.raw)
    return match["who"] if match else ""


def _age(s: Series, ages: np.ndarray, at: np.ndarray) -> PolicyAge | None:
    good = np.isfinite(ages)
    ages, at = ages[good], at[good]
    if len(ages) < _POLICY_AGE_FEWEST or ages.min() < 0:
        return None
    worst = int(np.argmax(ages))
    return PolicyAge(s, int(at[worst]), float(ages[worst]), float(np.median(ages)))
