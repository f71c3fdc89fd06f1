"""Curves of the run: what was measured, from where to where."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Annotated

import numpy as np
from pydantic import Field

from ...core.types import Evidence, ToolResult
from ...reading.curves.anomalies.batches_again import taken_again
from ...reading.curves.anomalies.finding import Curve, Finding, Group, groups, plain
from ...reading.curves.anomalies.learning import progress_findings, set_findings
from ...reading.curves.anomalies.loss_anomalies import (
    bound_findings,
    chance_findings,
    collapse_findings,
    ending_findings,
    loss_findings,
)
from ...reading.curves.anomalies.optimizer_curves import (
    optimizer_findings,
    restarting_schedule,
    scaler_findings,
    warm_restarts,
)
from ...reading.curves.anomalies.reinforcement import (
    accuracy_findings,
    engine_findings,
    expert_findings,
    reinforcement_findings,
)
from ...reading.curves.anomalies.resumes import (
    all_restarts,
    beside_findings,
    loaded_findings,
    part_findings,
    restart_findings,
    restored_findings,
    resume_findings,
    resumed_elsewhere,
    same_step_findings,
    skip_findings,
    weights_findings,
    worse_findings,
)
from ...reading.curves.anomalies.speed_curves import phase_findings, speed_findings
from ...reading.curves.anomalies.variants import sweep_findings, variant_findings
from ...reading.curves.curves import Curves, curves, point_evidence
from ...reading.curves.series import Series
from ...reading.curves.sheets import Sheet, Shown, apart, by_rank, prefixes, printed, sheet, shown
from ...reading.logs.failures import failures
from ...reading.run.files import RunFile
from ...reading.run.workspace import Workspace
from ...reading.settings.settings import plain_settings, read_settings
from ..tool import clean, failed, finding, not_applicable, tool

_LISTED = 120  # series told as evidence; the rest is counted
_POINTS = 24  # points of a series shown when one is asked for


@tool(emits=("metrics.series",), recall=True)
def read_metrics(
    ws: Workspace,
    metric: Annotated[str, Field(description="canonical name to show in detail, e.g. loss or grad_norm")] = "",
    variant: Annotated[str, Field(description="only this variant or file")] = "",
) -> ToolResult:
    """Read the curves a run logged.

    Use to see loss, grad_norm, learning_rate, throughput, reward and the like over steps: out of console logs of
    any framework and inference engine, CSV, JSON, trainer_state.json, TensorBoard files, W&B offline runs and
    MLflow's local stores. With `metric`, shows its points.
    """
    found = curves(ws)
    chosen = [
        s for s in found.series
        if s.copy_of is None
        and (s.metric == metric if metric else s.known)
        and (not variant or variant in (s.label, s.file.name))
    ]  # fmt: skip
    if not chosen:
        if found.failed:
            return failed(f"no metrics read; {found.failed[0][0].name}: {found.failed[0][1]}")
        return not_applicable("no metrics in any log, table or event file")
    chosen.sort(key=lambda s: (s.file.good, s.metric not in ("loss", "eval_loss", "reward"), s.file.name, s.metric))
    evidence = [series_evidence(ws, s) for s in chosen[:_LISTED]]
    lines = [describe(s) for s in chosen[:_LISTED]]
    if len(chosen) > _LISTED:
        lines.append(f"... {len(chosen) - _LISTED} more series")
    if metric:
        for s in chosen[:4]:
            lines += points(s)
    names = sorted({s.metric for s in chosen})
    summary = f"{len(chosen)} series from {len({s.file.name for s in chosen})} files: {', '.join(names[:12])}"
    return finding(summary, evidence, "\n".join(lines))


def describe(s: Series) -> str:
    """One line about a series: from where to where, least and greatest, what is not finite."""
    finite = s.values[s.finite]
    place = s.label + (f" rank {s.rank}" if s.rank is not None else "")
    if not len(finite):
        return f"{place}: {s.metric} ({s.raw}): {s.count} points, none finite"
    bad = f", {s.nans} nan, {s.infs} inf" if s.nans or s.infs else ""
    at = f"step {s.steps[0]:g} to {s.steps[-1]:g}" if s.stepped else "no steps"
    raw = s.raw + (f", printed from {s.expression}" if s.expression else "") + (f", {s.meaning}" if s.meaning else "")
    return (
        f"{place}: {s.metric} ({raw}): {s.count} points, {at}, "
        f"{finite[0]:.6g} to {finite[-1]:.6g}, least {finite.min():.6g}, greatest {finite.max():.6g}{bad}"
    )


def points(s: Series) -> list[str]:
    """A spread of points of a series as text."""
    chosen = np.unique(np.linspace(0, len(s) - 1, min(len(s), _POINTS)).astype(int))
    return [f"  {s.metric} step {s.steps[i]:g}: {s.values[i]:.6g}  ({s.file.name}:{s.lines[i]})" for i in chosen]


def series_evidence(ws: Workspace, s: Series) -> Evidence:
    """The evidence that a series exists: cites its last point."""
    return point_evidence(ws, s, len(s) - 1, "metrics.series", s.metric)


# ----------
# What is unusual about the curves of a run.

_FEW_DECIMALS = re.compile(r"(?:\blr|learning_rate)\b[\"' ]{0,2}[:= ] ?0\.0{2,4}(?![\de])")
_SUMMED = re.compile(r"(?i)(?:\b|_)(?:recon\w*|kld|elbo|mse|rmse|l1|bbox|giou|pixel|rec_loss|gen|adv|mel)(?:\b|_)")
_GROUPS = 48  # runs, ranks and variants looked at in full
_PER_KEY = 12  # evidence of one key; variants outcomes may be several each
_FACTS = {
    "loss.initial_value", "loss.final_value", "grad_norm.max", "grad_norm.last", "learning_rate.peak",
    "learning_rate.warmup_seen", "throughput.value", "step_time.median",
    "step_time.jitter_ratio", "reward.mean_last", "reward.rising", "kl.max", "loss.decreasing",
    "accuracy.value", "aux_loss.value", "variant.outcome", "variant.best", "variant.worst", "eval.gap_ratio",
    "data_time.fraction", "resume.from_step", "loss.few_steps",
    "eval.still_falling", "eval.initial_value", "eval.best_value", "eval.final_value", "resume.restored",
    "resume.weights_from", "resume.loss_before", "resume.loss_after", "loss.summary",
}  # fmt: skip


@tool(
    emits=(
        "engine.cache_full_fraction", "engine.waiting", "rl.router_skew",
        "loss.*", "eval.*", "grad_norm.*", "learning_rate.*", "loss_scale.*", "throughput.*", "step_time.*",
        "data_time.*", "memory.growth_per_step", "memory.host_growth_per_step", "memory.steps_up", "reward.*", "kl.*",
        "entropy.*", "response_length.*", "logprob_diff.*", "expert.*", "aux_loss.*", "router.*",
        "resume.*", "accuracy.*", "variant.*", "metrics.nan_count",
    ),
    recall=True,
)  # fmt: skip
def find_anomalies(ws: Workspace) -> ToolResult:
    """Find what is unusual in the curves of a run.

    First NaN or Inf and what came before it, spikes, divergence, plateaus at telling numbers, exact constants,
    validation against training, learning rate and loss scale, slowdowns, memory growth, reward and KL,
    what a resume changed, and how variants compare.
    """
    found = curves(ws)
    if not found.series and not found.sweeps:
        return not_applicable("no curves to look at")
    told = _capped(_evidence(ws, f) for f in _once(_findings(ws, found)))
    evidence = [e for e in told if not (_rounded_away(e) or _is_sum(e))]
    telling = Counter(e.key for e in evidence if e.key not in _FACTS)
    text = "\n".join(f"{e.key} = {e.value!r}  {e.file or ''}{f':{e.line}' if e.line else ''}" for e in evidence)
    if telling:
        return finding(f"{len(telling)} kinds of anomaly: {', '.join(list(telling)[:8])}", evidence, text)
    return clean("curves look ordinary", evidence, text)


def _findings(ws: Workspace, found: Curves) -> Iterator[Finding]:
    settings = plain_settings(ws)
    own = [s for s in found.series if not s.file.good]
    classes = next((s.value for s in settings if s.name == "classes"), None)
    chosen = _chosen(groups(own))
    restarts, resumed = restarting_schedule(ws, read_settings(ws)), all_restarts(ws)
    begun: dict[str, list[int]] = defaultdict(list)
    for told in (*resumed, *failures(ws).units):
        begun[told.file.name].append(told.line.number)
    for group in chosen:
        yield from (f for f in loss_findings(group, settings) if not _finite_before(f, own))
        rate = group.curve("learning_rate")
        renewed = rate.steps[warm_restarts(rate, restarts)] if rate is not None and rate.series.stepped else None
        yield from progress_findings(group, renewed)
        yield from optimizer_findings(group, restarts)
        yield from speed_findings(group)
        yield from phase_findings(group, settings)
        yield from reinforcement_findings(group)
        yield from expert_findings(group)
        yield from accuracy_findings(group, classes)
        yield from resume_findings(group, begun)
        yield from _counted(group)
    sums = [s for s in found.results if s.raw.endswith("train_loss") and not s.file.good and s.finite.any()]
    for one in [s for s in sums if s.file.role == "log"] or sums[:1]:  # other files only say it again
        yield Curve(one).at("loss.summary", plain(one.values[one.finite][-1]), -1)
    yield from ending_findings(chosen)
    yield from scaler_findings(chosen)
    yield from chance_findings(chosen)
    yield from bound_findings(ws, chosen)
    yield from collapse_findings(own, chosen)
    yield from loaded_findings(ws, own, settings)
    yield from worse_findings(ws, own)
    yield from set_findings(ws)
    yield from engine_findings(own)
    yield from variant_findings(ws, found.series, settings)
    for file, rows in found.sweeps:
        yield from sweep_findings(file, rows)
    yield from restart_findings(resumed)
    yield from restored_findings(ws)
    yield from weights_findings(ws)
    yield from skip_findings(ws, resumed)
    yield from part_findings(ws)
    yield from beside_findings(found.series, resumed)
    yield from resumed_elsewhere(found.series, resumed)
    yield from same_step_findings(found.series, resumed)


def _once(found: Iterator[Finding]) -> Iterator[Finding]:
    """Findings without those that a copy of the curve, or a print of every tenth point of it, only repeats."""
    kept = list(found)
    told = {(f.key, id(f.series)) for f in kept if f.series is not None}
    for f in kept:
        first = f.series.copy_of if f.series is not None else None
        if first is None or (f.key, id(first)) not in told:
            yield f


def _finite_before(found: Finding, own: list[Series]) -> bool:
    """Whether NaN from the start in a log is but late printing: the run's logger has finite values of earlier steps."""
    s = found.series
    return found.key == "loss.nan_from_start" and s is not None and any(
        o.metric == s.metric and o.rank == s.rank and o.variant == s.variant and o.file.role != s.file.role
        and o.file.run == s.file.run and o.stepped and o.finite.any() and int(o.finite.argmax()) == 0
        and o.steps[0] <= s.steps[0]
        for o in own
    )  # fmt: skip


def _chosen(found: list[Group]) -> list[Group]:
    """All groups where they are few; of a thousand ranks, those with NaN first."""
    return sorted(found, key=lambda g: -min(g.nonfinite, 1))[:_GROUPS] if len(found) > _GROUPS else found


def _counted(group: Group) -> Iterator[Finding]:
    printed = group.series.get("nan_iterations")
    if printed is not None and printed.finite.any() and printed.values[printed.finite].max() > 0:
        at = int((printed.values > 0).nonzero()[0][0])
        yield Finding("metrics.nan_count", int(printed.values[printed.finite].max()), printed, at)
    for series in group.series.values():
        if series.nans and series.known and series.metric not in ("loss", "eval_loss", "grad_norm"):
            yield Finding("metrics.nan_count", series.nans, series, int((~series.finite).nonzero()[0][0]))


def _evidence(ws: Workspace, f: Finding) -> Evidence:
    if f.series is None:
        assert f.file is not None and f.line is not None
        return ws.cite(f.file, f.line, f.key, f.value)
    return point_evidence(ws, f.series, f.index, f.key, f.value)


def _rounded_away(e: Evidence) -> bool:
    """A rate of zero as a print with a few fixed decimals shows it: it says nothing of a rate like 1e-6."""
    return e.key in ("learning_rate.zero", "learning_rate.zero_at_rise") and bool(_FEW_DECIMALS.search(e.text or ""))


def _is_sum(e: Evidence) -> bool:
    """A high start that is no cross-entropy: beside it stand terms that are summed over pixels or boxes."""
    return e.key == "loss.high_start" and bool(_SUMMED.search(e.text or ""))


def _capped(evidence: Iterator[Evidence]) -> Iterator[Evidence]:
    """At most so many of a key, and no fact twice on one line."""
    counts: dict[str, int] = defaultdict(int)
    seen: set[tuple] = set()
    for e in evidence:
        identity = (e.key, str(e.value), e.file, e.line, e.offset)
        counts[e.key] += 1
        if counts[e.key] <= _PER_KEY * (3 if e.key == "variant.outcome" else 1) and identity not in seen:
            seen.add(identity)
            yield e


# ----------
# Small tables and listings that somebody made of a run: controls, sums by rank, names on both sides.

ROLES = ("metrics", "data", "other", "log", "capture", "config")
BYTES = 64 << 10  # of one table
FILES = 60
TRACE = 8 << 20  # bytes of a record of sample ids


@tool(
    emits=(
        "variant.no_effect", "variant.machine_decides", "variant.one_metric_apart",
        "reward.component_zero", "numerics.tensor_unchanged",
        "resume.samples_repeated", "rank.parameters_differ", "files.key_prefix_differs",
    ),
    recall=True,
)  # fmt: skip
def compare_rows(ws: Workspace) -> ToolResult:
    """Compare the rows of small tables and listings: settings without effect, columns that never move, controls.

    Use where the run's files hold a table of trials, of weights, of sample ids or of sums by rank.
    """
    files = [f for f in ws.files if f.size <= BYTES and f.role in ROLES]
    evidence = []
    read = 0
    tables: list[tuple[RunFile, Sheet]] = []
    for file in files[:FILES]:
        lines = [x for x in ws.lines(file) if x.text.strip()]
        table = sheet(lines)
        read += table is not None
        found: list[Shown] = [*(shown(table) if table else ()), *by_rank(lines[:2000]), *prefixes(lines[:2000])]
        evidence += [ws.cite(file, s.line, s.key, s.value) for s in found[:24]]
        if whole := table or printed(lines):
            tables.append((file, whole))
    evidence += _taken_again(ws)
    for (one, a), (other, b) in list(combinations(tables, 2))[:200]:
        evidence += [ws.cite(other if second else one, s.line, s.key, s.value) for second, s in apart(a, b)]
    if not evidence:
        return clean(f"{read} small tables show nothing odd") if read else not_applicable("no small table")
    keys = sorted({e.key for e in evidence})
    text = "\n".join(f"{e.file}:{e.line} {e.key} {e.value}: {e.text}" for e in evidence)
    return finding(", ".join(keys), evidence, text)


def _taken_again(ws: Workspace) -> list[Evidence]:
    """Batches of the first start that a resumed one took once more, by a record of sample ids."""
    out = []
    for file in [f for f in ws.files if f.role in ("metrics", "data", "other", "log")] if all_restarts(ws) else []:
        for first, again, count in list(taken_again(ws.lines(file)) if file.size <= TRACE else ())[:4]:
            out += [ws.cite(file, line, "resume.samples_repeated", f"{count} batches") for line in (first, again)]
    return out
