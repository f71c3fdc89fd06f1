"""The scores of `evals/score.py` as a scorer of inspect-ai. Nothing is judged by a model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from inspect_ai.scorer import Score, Scorer, Target, mean, scorer  # pyright: ignore[reportMissingImports]
from inspect_ai.solver import TaskState  # pyright: ignore[reportMissingImports]

from ...agent.core.report import Report
from ..case import Case, load
from ..score import INSUFFICIENT, score
from ..score import Score as Found

NOT_MEASURED = math.nan  # left out of a mean
NAMES = (
    "exact", "lenient", "top3", "evidence_recall", "evidence_precision", "invented", "false_alarm",
    "abstained_rightly", "abstained_wrongly", "first_rank", "first_step", "fix", "patch_applies", "confidence",
    "squared_error", "model_calls", "tool_calls", "tokens", "cost", "seconds",
)  # fmt: skip


@scorer(metrics={name: [mean()] for name in NAMES})
def verdict(cases: Mapping[str, Case] | None = None) -> Scorer:
    """Each score of a report by its name; what was not to be measured is not a number.

    Args:
        cases: the incidents by id; what is not among them is read from the folder that the sample names.
    """
    known = dict(cases or {})

    async def value(state: TaskState, target: Target) -> Score:
        from pathlib import Path

        case = known.get(str(state.sample_id)) or load(Path(state.metadata["folder"]))
        text = state.store.get("report")
        if not text:
            return Score(value=dict.fromkeys(NAMES, 0.0), explanation="there is no report")
        report = Report.model_validate_json(text)
        found = score(case, report, state.store.get("seconds", 0.0), state.store.get("in_file", False))
        return Score(value=values(found, case), answer=found.said or "", explanation=_explained(found))

    return value


def values(s: Found, case: Case) -> dict[str, float]:
    """The figures of a score, each by its name."""
    healthy = "none.healthy" in case.expected
    unsure = INSUFFICIENT in case.expected
    figures: dict[str, float | None] = {
        "exact": s.exact,
        "lenient": s.lenient,
        "top3": s.top3,
        "evidence_recall": s.marks_cited / s.marks if s.marks else None,
        "evidence_precision": s.support_near / s.support if s.support else None,
        "invented": len(s.invented),
        "false_alarm": s.false_alarm if healthy else None,
        "abstained_rightly": (s.said == INSUFFICIENT) if unsure else None,
        "abstained_wrongly": None if unsure else s.wrongly_silent,
        "first_rank": s.rank_right,
        "first_step": s.step_right,
        "fix": s.fix,
        "patch_applies": bool(s.repairs.get("patch")) if s.in_file else None,
        "confidence": s.confidence,
        "squared_error": (s.confidence - s.exact) ** 2,
        "model_calls": s.model_calls,
        "tool_calls": s.tool_calls,
        "tokens": s.tokens,
        "cost": s.cost,
        "seconds": s.seconds,
    }
    return {name: NOT_MEASURED if figure is None else float(figure) for name, figure in figures.items()}


def _explained(s: Found) -> str:
    lines = [f"said {s.said} ({s.status}, {s.confidence:.2f}); expected {' or '.join(s.expected)}"]
    lines += [f"not cited: {mark}" for mark in s.missed_marks]
    lines += [f"invented: {text}" for text in s.invented]
    return "\n".join(lines)
