"""How many updates old the policy was that wrote the rollouts, by the versions that a run prints."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .named_series import named_series, paired
from .series import Series

if TYPE_CHECKING:
    from ..workspace import Workspace

_VERSION = re.compile(
    r"(?i)(?:^|[/._])(?P<who>[a-z_]*?)_?(?:weights?_|policy_|model_|params?_)?versions?(?:[/._](?:mean|avg))?$"
)
_WRITER = re.compile(r"(?i)rollout|actor|generat|sampl|worker|behaviou?r|engine|infer|vllm|sglang|collect|explor")
_LEARNER = re.compile(r"(?i)learner|train|update|current|latest|global|^policy$|^$")
_AGE = re.compile(
    r"(?i)(?:^|[/._])(?:staleness|(?:version|policy|weights?|params?|off_?policy)_?(?:lag|gap|age|staleness|delay))"
    r"(?:[/._](?:mean|avg|max))?$"
)
_FEWEST = 3  # points


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
    if len(ages) < _FEWEST or ages.min() < 0:
        return None
    worst = int(np.argmax(ages))
    return PolicyAge(s, int(at[worst]), float(ages[worst]), float(np.median(ages)))
