"""The plots of a report: what to draw of a run, and the words beside each drawing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from ...core.errors import ParseError
from ...core.report import CitedEvidence, Report
from ...reading.curves.curves import curves, line_at
from ...reading.curves.series import Series
from ...reading.run.clocks import Stamp, earlier, stamp_of
from ...reading.run.workspace import Workspace
from ...safety.fences import one_line
from ...safety.redact import Redactor
from .page_markup import Html, clipped, tag
from .plot import Curve, Figure, Points, draw, labels, said, said_step, view

# ----------
# Which curves matter for a verdict: by its family, by what its evidence speaks of, and by what was measured.


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


# ----------
# What is marked on the curves: the first anomaly and the first failure, where a curve can tell their place.

FIRST_ANOMALY, FIRST_FAILURE = "first anomaly", "first failure"
# What a key ends in that says when something began; levels and facts (`loss.final_value`) begin nowhere, and what was
# so before (`loss.nan_flat_before`) ends there.
_BEGINS = re.compile(
    r"\.(?!\w*_before$)(?:\w*first_\w*|\w*spike\w*|\w*jump\w*|\w*nan\w*|\w*overflow\w*|\w*start|\w*onset\w*"
    r"|\w*collaps\w*|\w*explod\w*"
    r"|\w*worsened|\w*diverg\w*|\w*drop\w*|\w*slow\w*|\w*blow\w*)$"
)
_LOOK = 8  # curves of a figure on which a mark is looked for
_PACKED = frozenset((".gz", ".zst", ".bz2", ".xz"))
_FAILED = ("memory.oom", "error.exception")
_SILENT = "rank.silent_while_others_fail"


@dataclass(frozen=True, slots=True)
class Mark:
    """An event by its step, by its place in a file and by its time; each may be unknown."""

    name: str
    step: float | None = None
    file: str | None = None
    offset: int | None = None
    time: str | None = None

    def on(self, series: Series) -> float | None:
        """Where it falls on a curve: at its step, or at the last point written before it."""
        if self.step is not None and series.stepped:
            return self.step
        if self.file == series.file.name and self.offset is not None:
            before = int(np.searchsorted(series.offsets, self.offset, side="right"))
            return float(series.steps[max(before - 1, 0)])
        stamp = stamp_of(self.time) if self.time else None
        return _by_time(series, stamp) if stamp else None


def _by_time(series: Series, stamp: Stamp) -> float | None:
    """The step of the last point whose line is not stamped later; None where the two clocks cannot be compared."""
    if series.file.role != "log" or series.file.path.suffix in _PACKED:
        return None
    low, high = 0, len(series)  # the points before `low` are not later, those from `high` on are
    while low < high:
        middle = (low + high) // 2
        own = stamp_of(line_at(series, middle).text)
        later = earlier(stamp, own)
        if own is None or (later is None and own.value != stamp.value):
            return None
        low, high = (low, middle) if later else (middle + 1, high)
    return float(series.steps[low - 1]) if low else None


def marks(report: Report) -> list[Mark]:
    """Anomalies and failures of a verdict, those most sure of their place first within a kind."""
    if report.status in ("healthy", "answer"):
        return []
    by_id = {e.id: e for e in report.evidence}
    proof = [by_id[i] for d in report.differential[:1] for i in d.supported_by if i in by_id]
    proof += [by_id[i] for s in report.summary for i in s.cites if i in by_id]
    anomalies = sorted((e for e in proof if _BEGINS.search(e.key)), key=lambda e: (e.step is None, e.step or 0))
    return [*(_mark(FIRST_ANOMALY, e) for e in anomalies), *_failures(report, by_id)]


def _failures(report: Report, by_id: dict[str, CitedEvidence]) -> list[Mark]:
    """The first failure as each of the ways to tell its place has it, the most exact first; then who fell silent."""
    first = report.root_cause.first_failure
    links = [by_id[link.evidence] for link in report.chain if link.evidence in by_id]
    found = [Mark(FIRST_FAILURE, float(first.step))] if first.step is not None else []
    found += [_mark(FIRST_FAILURE, e) for e in links if e.key == "error.first"][:1]
    found += [Mark(FIRST_FAILURE, time=first.time)] if first.time else []
    for key in _FAILED:
        found += [_mark(FIRST_FAILURE, e) for e in [*links, *report.evidence] if e.key == key and e.kind == "line"][:4]
    silent = [e for e in report.evidence if e.key == _SILENT and e.step is not None and e.rank is not None]
    return [*found, *(_mark(f"rank {e.rank} last heard", e) for e in silent[:2])]


def _mark(name: str, e: CitedEvidence) -> Mark:
    return Mark(name, None if e.step is None else float(e.step), e.file if e.line else None, e.offset)


def placed(found: list[Mark], lines: list[Series]) -> dict[str, float]:
    """Each kind of mark with the place that the first of them has on any of the curves; anomalies: the earliest place.

    A value that is not finite is an anomaly whether or not a tool said so.
    """
    places: dict[str, float] = {}
    early = [at for m in found if m.name == FIRST_ANOMALY for s in lines[:_LOOK] if (at := m.on(s)) is not None]
    if found:
        early += [float(s.steps[np.argmin(s.finite)]) for s in lines if not s.file.good and not s.finite.all()]
    if early:
        places[FIRST_ANOMALY] = min(early)
    for mark in (m for m in found if m.name != FIRST_ANOMALY and m.name not in places):
        at = next((at for s in lines[:_LOOK] if (at := mark.on(s)) is not None), None)
        if at is not None:
            places.setdefault(mark.name, at)
    return places


# ----------

_NAMED = 120  # characters of a name in a sentence


def figures(report: Report, workspace: Workspace, redactor: Redactor) -> list[Figure]:
    """The plots that matter for a verdict, the most telling first."""
    found = marks(report)
    return [
        figure_of(f"plot{number}", one, report, placed(found, one.lines), redactor)
        for number, one in enumerate(chosen(report, workspace), 1)
    ]


def drawn(figure: Figure) -> Html:
    """A plot with its caption."""
    unit = "GiB" if figure.is_bytes else ""
    head = tag("strong", figure.metric.replace("_", " "), f" ({unit})" if unit else None)
    across = "by step" if figure.stepped else "by reading, as no steps are printed"
    caption = tag("figcaption", head, f" {across}", tag("br"), tag("small", figure.text))
    return tag("figure", caption, tag("div", draw(figure), class_="plot"))


def figure_of(ident: str, one: Chosen, report: Report, places: dict[str, float], redactor: Redactor) -> Figure:
    """A metric with its curves, its marks and the sentence beside it.

    Args:
        places: of marks, as steps.
    """
    seen, near = view(one.lines, places)
    names = [clipped(one_line(redactor.redact(name)), _NAMED) for name in labels(one.lines)]
    curves = [
        Curve(name, _points(s), s.file.good, _culprit(s, report)) for name, s in zip(names, one.lines, strict=True)
    ]
    figure = Figure(ident, one.metric, curves, seen, near, one.stepped, "")
    told = [_sentence(name, s, figure.is_bytes) for name, s in zip(names, one.lines, strict=True)]
    text = " ".join(told) if len(told) <= 3 else _together(one.lines, figure.is_bytes)
    if one.more:
        text += f" {one.more:,} more curves are not drawn."
    return replace(figure, text=text)


def _points(s: Series) -> Points:
    known = np.isfinite(s.steps)
    return Points(np.clip(s.steps[known], -1e300, 1e300), s.values[known])


def _culprit(s: Series, report: Report) -> bool:
    """Whether a curve is of the rank or the variant that failed first."""
    rank = report.root_cause.first_failure.rank
    variants = {e.variant for e in report.evidence if e.variant} if report.differential else set()
    return (rank is not None and s.rank == rank) or (len(variants) == 1 and s.variant in variants)


def _sentence(name: str, s: Series, is_bytes: bool) -> str:
    """A curve in words: how many points, from where to where, its last value, what was not finite."""
    what = f"{name}: {s.count:,} points"
    if s.stepped:
        what += f", steps {said_step(float(s.steps.min()))} to {said_step(float(s.steps.max()))}"
    if s.finite.any():
        values = s.values[s.finite]
        what += f", {_ends(values, is_bytes)}, last {said(float(values[-1]), is_bytes)}"
    return f"{what}{_not_finite([s])}."


def _together(lines: list[Series], is_bytes: bool) -> str:
    """Many curves in words."""
    own = [s for s in lines if not s.file.good]
    values = np.concatenate([s.values[s.finite] for s in own])
    ends = f", {_ends(values, is_bytes)}" if len(values) else ""
    return f"{len(own):,} curves, {sum(s.count for s in own):,} points{ends}{_not_finite(own)}."


def _ends(values: np.ndarray, is_bytes: bool) -> str:
    return f"least {said(float(values.min()), is_bytes)}, greatest {said(float(values.max()), is_bytes)}"


def _not_finite(lines: list[Series]) -> str:
    count = sum(s.nans + s.infs for s in lines)
    if not count:
        return ""
    first = min((float(s.steps[np.argmin(s.finite)]) for s in lines if not s.finite.all()), default=None)
    since = f", first at step {said_step(first)}" if first is not None and lines[0].stepped else ""
    return f"; not finite {count:,} times{since}"
