"""Which curves matter for a verdict: by its family, by what its evidence speaks of, and by what was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..errors import ParseError
from ..reading.curves import curves
from ..reading.series import Series
from ..report import Report
from ..workspace import Workspace

FIGURES = 4
MOST_LINES = 256  # of one figure; more are told, not read
LEAST_POINTS = 2

_OPTIMIZING = ("loss", "grad_norm", "learning_rate", "loss_scale", "eval_loss")
_PACE = ("step_time", "throughput", "data_time", "comm_time", "mfu", "bar_step_time")
_BY_FAMILY: dict[str, tuple[str, ...]] = {
    "loss": _OPTIMIZING,
    "data": ("loss", "grad_norm", "data_time", "accuracy", "eval_loss"),
    "memory": ("memory", "peak_memory", "host_memory", "step_time", "response_length", "loss"),
    "speed": (*_PACE, "memory", "loss"),
    "dist": ("step_time", "throughput", "loss", "grad_norm", "bar_step_time"),
    "hw": ("step_time", "throughput", "loss", "grad_norm", "tflops"),
    "env": ("loss", "step_time", "throughput", "grad_norm"),
    "ckpt": ("loss", "grad_norm", "learning_rate", "eval_loss", "eval_perplexity"),
    "eval": ("eval_loss", "eval_accuracy", "eval_perplexity", "loss"),
    "rl": ("reward", "kl", "entropy", "response_length", "grad_norm", "clip_ratio", "loss"),
    "moe": ("loss", "aux_loss", "expert_cv", "grad_norm", "z_loss"),
    "none": ("loss", "reward", "grad_norm", "learning_rate", "throughput", "step_time"),
}
_REST = ("loss", "reward", "grad_norm", "learning_rate", "eval_loss", "step_time", "throughput", "memory")
_SPOKEN_AS = {  # heads of evidence keys that are called otherwise where they are measured
    "eval": ("eval_loss", "eval_perplexity", "eval_accuracy"), "rl": ("reward", "kl"), "expert": ("expert_cv",),
    "router": ("z_loss",), "numerics": ("loss",), "resume": ("loss",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chosen:
    """A metric to draw and its curves: those of the run, then those of the healthy run beside it."""

    metric: str
    lines: list[Series]
    more: int = 0  # further curves that are not drawn

    @property
    def stepped(self) -> bool:
        """Whether its points name steps; otherwise they are counted."""
        return self.lines[0].stepped


def chosen(report: Report, workspace: Workspace) -> list[Chosen]:
    """At most `FIGURES` metrics, the most telling first; none for an answer."""
    if report.status == "answer":
        return []
    try:
        series = curves(workspace).series
    except (ParseError, OSError):  # a file that went away meanwhile
        return []
    by_metric: dict[str, list[Series]] = {}
    for s in series:
        if len(s) >= LEAST_POINTS:  # finite or not: a loss of one number and then NaN is the most telling of all
            by_metric.setdefault(s.metric, []).append(s)
    found = [chosen_lines(metric, by_metric[metric]) for metric in _wanted(report) if metric in by_metric]
    return [c for c in found if any(not s.file.good for s in c.lines)][:FIGURES]


def _wanted(report: Report) -> list[str]:
    """Metrics in order: what the proof speaks of, what the family is about, what anyone looks at."""
    by_id = {e.id: e for e in report.evidence}
    cited = [i for d in report.differential[:1] for i in d.supported_by] + [i for s in report.summary for i in s.cites]
    heads = dict.fromkeys(by_id[i].key.split(".")[0] for i in cited if i in by_id and by_id[i].kind == "line")
    spoken = [m for head in heads for m in _SPOKEN_AS.get(head, (head,))]
    family = (report.root_cause.id or "").split(".")[0]
    own = _BY_FAMILY.get(family, ())
    first = [m for m in own if m in spoken] or list(own[:1])
    return list(dict.fromkeys((*first, *[m for m in spoken if m not in ("memory",) or m in own], *own, *_REST)))


def chosen_lines(metric: str, found: list[Series]) -> Chosen:
    """The curves that share an axis of steps, each measurement once, the run's own first."""
    stepped = max((True, False), key=lambda kind: sum(s.count for s in found if s.stepped == kind))
    kept: dict[object, Series] = {}
    for s in sorted((s for s in found if s.stepped == stepped), key=lambda s: (s.file.good, -len(s))):
        kept.setdefault(_identity(s), s)
    lines = sorted(kept.values(), key=lambda s: (s.file.good, s.variant or "", s.attempt or 0, _rank(s), s.file.name))
    own = [s for s in lines if not s.file.good]
    good = [s for s in lines if s.file.good][:2]
    return Chosen(metric, [*own[:MOST_LINES], *good], max(0, len(own) - MOST_LINES))


def _rank(s: Series) -> int:
    return -1 if s.rank is None else s.rank


def _identity(s: Series) -> object:
    """What two files hold of one measurement: a log and the history that the trainer keeps of it."""
    ends = [f"{v:.4g}" for v in (s.values[0], s.values[len(s) // 2], s.values[-1])]
    return (s.file.run, s.rank, s.variant or s.file.variant, s.count, float(np.max(s.steps)), *ends)
