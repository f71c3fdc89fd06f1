"""What is unusual about the curves of a run."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from ..reading.anomalies.chance import bound_findings, chance_findings
from ..reading.anomalies.collapse import collapse_findings
from ..reading.anomalies.engines import engine_findings
from ..reading.anomalies.eval_sets import set_findings
from ..reading.anomalies.experts import accuracy_findings, expert_findings
from ..reading.anomalies.finding import Finding, Group, groups
from ..reading.anomalies.loaded import loaded_findings, worse_findings
from ..reading.anomalies.loss import ending_findings, loss_findings
from ..reading.anomalies.optimizer import optimizer_findings
from ..reading.anomalies.phases import phase_findings
from ..reading.anomalies.progress import progress_findings
from ..reading.anomalies.reinforcement import reinforcement_findings
from ..reading.anomalies.resume import (
    all_restarts,
    part_findings,
    restart_findings,
    resume_findings,
    resumed_elsewhere,
    skip_findings,
)
from ..reading.anomalies.same_steps import same_step_findings
from ..reading.anomalies.scaler import scaler_findings
from ..reading.anomalies.speed import speed_findings
from ..reading.anomalies.variants import sweep_findings, variant_findings
from ..reading.curves import Curves, curves
from ..reading.plain_settings import plain_settings
from ..reading.points import point_evidence
from ..reading.series import Series
from ..tool import clean, finding, not_applicable, tool
from ..types import Evidence, ToolResult
from ..workspace import Workspace

_FEW_DECIMALS = re.compile(r"(?:\blr|learning_rate)\b[\"' ]{0,2}[:= ] ?0\.0{2,4}(?![\de])")
_SUMMED = re.compile(r"(?i)(?:\b|_)(?:recon\w*|kld|elbo|mse|rmse|l1|bbox|giou|pixel|rec_loss)(?:\b|_)")
_GROUPS = 48  # runs, ranks and variants looked at in full
_PER_KEY = 12  # evidence of one key; variants outcomes may be several each
_FACTS = {
    "loss.initial_value", "loss.final_value", "grad_norm.max", "grad_norm.last", "learning_rate.peak",
    "learning_rate.constant", "learning_rate.warmup_seen", "throughput.value", "step_time.median",
    "step_time.jitter_ratio", "memory.peak_bytes", "reward.mean_last", "reward.rising", "kl.max", "loss.decreasing",
    "accuracy.value", "aux_loss.value", "variant.outcome", "variant.best", "variant.worst", "eval.gap_ratio",
    "data_time.fraction", "clip_ratio.zero", "learning_rate.missing", "resume.from_step", "loss.few_steps",
    "eval.still_falling",
}  # fmt: skip


@tool(
    emits=(
        "engine.cache_full_fraction", "engine.waiting", "rl.router_skew",
        "loss.*", "eval.*", "grad_norm.*", "learning_rate.*", "loss_scale.*", "throughput.*", "step_time.*",
        "data_time.*", "memory.growth_per_step", "memory.growth_start", "memory.host_growth_per_step",
        "memory.host_growth_start", "memory.peak_bytes", "memory.steps_up", "reward.*", "kl.*", "entropy.*",
        "response_length.*", "clip_ratio.*", "logprob_diff.*", "expert.*", "aux_loss.*", "router.*", "resume.*",
        "accuracy.*", "variant.*", "metrics.nan_count",
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
    told = _capped(_evidence(ws, f) for f in _findings(ws, found))
    evidence = [e for e in told if not (_rounded_away(e) or _is_sum(e))]
    evidence += _absences(found)
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
    for group in chosen:
        yield from (f for f in loss_findings(group, settings) if not _finite_before(f, own))
        yield from progress_findings(group)
        yield from optimizer_findings(group)
        yield from speed_findings(group)
        yield from phase_findings(group, settings)
        yield from reinforcement_findings(group)
        yield from expert_findings(group)
        yield from accuracy_findings(group, classes)
        yield from resume_findings(group)
        yield from _counted(group)
    yield from ending_findings(chosen)
    yield from scaler_findings(chosen)
    yield from chance_findings(chosen)
    yield from bound_findings(ws, chosen)
    yield from collapse_findings(own, chosen)
    yield from loaded_findings(ws, own, settings)
    yield from worse_findings(ws, own)
    yield from set_findings(ws)
    yield from engine_findings(own)
    yield from variant_findings(found.series, settings)
    for file, rows in found.sweeps:
        yield from sweep_findings(file, rows)
    resumed = all_restarts(ws)
    yield from restart_findings(resumed)
    yield from skip_findings(ws, resumed)
    yield from part_findings(ws)
    yield from resumed_elsewhere(found.series, resumed)
    yield from same_step_findings(found.series, resumed)


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


def _absences(found: Curves) -> list[Evidence]:
    """A run that logs its loss and not its learning rate hides the first thing one would look at."""
    with_loss = {s.file.name for s in found.series if s.metric == "loss" and s.count >= 5 and not s.file.good}
    if with_loss and not any(s.metric == "learning_rate" for s in found.series):
        return [Evidence(key="learning_rate.missing", kind="absent", value=None, searched=sorted(with_loss)[:8])]
    return []
