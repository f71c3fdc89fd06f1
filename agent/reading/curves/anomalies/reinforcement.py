"""Reward, KL, entropy, response length, clipping and probability agreement of reinforcement learning."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from ..series import Series
from ..shape import change, head, level, mad, noise, smooth, tail
from .finding import Curve, Finding, Group, plain
from .learning import divergence


def reinforcement_findings(group: Group) -> Iterator[Finding]:
    """The curves of an RL run. Also the balance of experts, which is judged in the same way."""
    yield from _reward(group)
    yield from _zero_on_policy(group)
    yield from _no_margin(group)
    yield from _kl_term(group)
    yield from _kl(group)
    yield from _entropy(group)
    yield from _lengths(group)
    yield from _agreement(group)


def trend(curve: Curve) -> str:
    """`rising`, `falling` or `flat`; flat also when nothing can be told."""
    net, sigmas = change(curve.fair)
    size = max(abs(level(curve.fair, head(len(curve.fair), 0.3, 2))), 1e-9)
    if sigmas > 4 and net > 0.05 * size:
        return "rising"
    if sigmas < -4 and net < -0.05 * size:
        return "falling"
    return "flat"


def is_still(curve: Curve) -> bool:
    """Whether a curve stayed where it was: enough points, no net change to speak of."""
    net, sigmas = change(curve.fair)
    return len(curve) >= 10 and abs(sigmas) < 2.5 and abs(net) < 0.1 * max(abs(float(np.median(curve.fair))), 1e-9)


def _reward(group: Group) -> Iterator[Finding]:
    reward = group.curve("reward", "success")
    if reward is not None and len(reward) >= 3 and (group.rl or reward.series.metric == "reward"):
        last = len(reward) - 1
        yield reward.at("reward.mean_last", plain(round(level(reward.values, tail(len(reward), 0.2, 2)), 6)), last)
        if len(reward) >= 6:
            collapsed = _collapse(reward)
            if collapsed is not None:
                yield reward.at("reward.collapsed", reward.when(collapsed), collapsed)
            course = "rising" if collapsed is None and _won_early(reward) else trend(reward)
            if course != "flat" or is_still(reward):
                yield reward.at(f"reward.{course}", True, last)
            if group.rl and float(np.ptp(reward.values)) == 0.0:
                yield reward.at("reward.constant", plain(reward.values[0]), 0)
    std, frac = group.curve("reward_std"), group.curve("zero_std_fraction")
    if std is not None and len(std) >= 3 and float((std.values == 0).mean()) > 0.8:
        yield std.at("reward.std_zero", True, int(np.flatnonzero(std.values == 0)[0]))
    elif frac is not None and len(frac) >= 3 and float(np.median(frac.values)) > 0.9:
        yield frac.at("reward.std_zero", True, len(frac) - 1)


def _zero_on_policy(group: Group) -> Iterator[Finding]:
    """A loss of about zero with gradients and a spread of rewards: on policy, centred advantages add up to nothing."""
    loss, norm = group.curve("loss"), group.curve("grad_norm")
    reward, std = group.curve("reward"), group.curve("reward_std")
    if loss is None or norm is None or reward is None or std is None or len(loss) < 3 or group.nonfinite:
        return
    learns = len(reward) >= 4 and level(reward.values, tail(len(reward), 0.3, 2)) > level(reward.values, slice(0, 2))
    if float(np.abs(loss.values).max()) < 1e-3 and norm.values.min() > 1e-3 and std.values.min() > 0 and learns:
        middle = len(norm) // 2
        for place in (0, middle, len(reward) - 1):
            yield reward.at("loss.zero_on_policy", True, min(place, len(reward) - 1))


def _kl_term(group: Group) -> Iterator[Finding]:
    """A loss that rises in step with the KL divergence: centred advantages add up to nothing, the penalty is left."""
    loss, kl = group.curve("loss"), group.curve("kl")
    if loss is None or kl is None or group.curve("reward") is None or group.nonfinite:
        return
    _, a, b = np.intersect1d(loss.steps, kl.steps, return_indices=True)
    late = slice(len(a) // 2, None)
    penalty, divergence = loss.values[a][late], kl.values[b][late]
    if len(a) < 10 or penalty.min() <= 0 or divergence.min() <= 0:
        return
    shares = penalty / divergence
    early = float(np.median(loss.values[a][: max(3, len(a) // 4)]))
    rises = float(np.median(penalty)) > 2 * max(early, 0.0)
    if rises and float(np.median(shares)) <= 1 and mad(shares) < 0.15 * float(np.median(shares)):
        yield loss.at("loss.is_kl_term", plain(round(float(np.median(shares)), 4)), int(a[-1]))


def _no_margin(group: Group) -> Iterator[Finding]:
    """Preference rewards of exactly zero after the first step: the policy is its reference, or beta is zero.

    Where even the log-probabilities are exactly zero, no token of the answers is counted.
    """
    sides = [group.curve(name) for name in ("reward_chosen", "reward_rejected", "reward_margin")]
    curves = [c for c in sides if c is not None]
    if len(curves) < 2 or any(len(c) < 4 or c.values[1:].any() for c in curves):
        return
    last = len(curves[0]) - 1
    logps = group.curve("logps_chosen")
    counted = logps is None or bool(logps.values.any())
    yield curves[0].at("reward.no_margin" if counted else "reward.no_answer_tokens", True, last)


def _collapse(curve: Curve) -> int | None:
    """Where the curve fell by most of what it had gained (or of its level), for good."""
    values = curve.values
    window = min(101, max(3, len(values) // 20)) | 1
    smoothed = smooth(values, window)
    best = int(np.argmax(smoothed))
    end = float(np.median(values[-max(2, len(values) // 20) :]))
    gained = float(smoothed[best] - smoothed[: best + 1].min())
    size = max(gained, 0.3 * abs(float(smoothed[best])))
    if best >= len(values) - 3 or smoothed[best] - end < 0.6 * size or smoothed[best] - end < 5 * mad(np.diff(values)):
        return None
    low = np.flatnonzero(values[best:] < smoothed[best] - 0.5 * (smoothed[best] - end))
    return best + int(low[0]) if len(low) else None


def _kl(group: Group) -> Iterator[Finding]:
    warned = group.curve("kl_warned")
    if warned is not None:
        worst = int(np.argmin(warned.values))
        yield warned.at("kl.negative", plain(warned.values[worst]), worst)
    kl = group.curve("kl")
    if kl is None or len(kl) < 3:
        return
    top = int(np.argmax(kl.values))
    yield kl.at("kl.max", plain(kl.values[top]), top)
    last = level(kl.values, tail(len(kl), 0.1, 2))
    if warned is None and last < -0.5:
        yield kl.at("kl.negative", plain(round(last, 5)), len(kl) - 1)
    early = level(kl.values, slice(len(kl) // 10, max(len(kl) // 2, 2)))
    if len(kl) >= 8 and last > 1.0 and last > 8 * max(early, 0.01):
        over = np.flatnonzero(kl.values > max(1.0, 4 * early))
        yield kl.at("kl.exploding", plain(round(last, 4)), int(over[0]) if len(over) else top)


def _entropy(group: Group) -> Iterator[Finding]:
    if not group.rl and group.curve("accuracy", "reward_margin") is not None:
        return  # of the predictions in supervised and preference training: it goes where the data is
    entropy = group.curve("entropy")
    alike = _alike(group)
    if alike is not None:
        yield alike
    if entropy is None or len(entropy) < 6:
        return
    first, last = level(entropy.values, head(len(entropy), 0.15, 2)), level(entropy.values, tail(len(entropy), 0.15, 2))
    if first > 0 and last < 0.15 * first and (alike is not None or not _won(group)):
        low = int(np.flatnonzero(entropy.values < 0.3 * first)[0])
        yield entropy.at("entropy.collapsed", plain(round(last, 5)), low)
    elif first > 0 and last < 0.5 * first and trend(entropy) == "falling":
        yield entropy.at("entropy.falling", plain(round(last / first, 4)), len(entropy) - 1)
    elif first > 0 and last > 2 * first and trend(entropy) == "rising":
        yield entropy.at("entropy.rising", plain(round(last / first, 4)), len(entropy) - 1)


def _alike(group: Group) -> Finding | None:
    """Where the share of distinct samples fell for good: other prompts, one text. A right policy keeps it."""
    curve = group.curve("diversity")
    if curve is None or len(curve) < 6 or not group.rl:
        return None
    first, last = level(curve.values, head(len(curve), 0.15, 2)), level(curve.values, tail(len(curve), 0.25, 2))
    if first <= 0 or last > 0.2 * first:
        return None
    return curve.at("entropy.samples_alike", plain(round(last, 5)), len(curve) - 1)


def _won_early(reward: Curve) -> bool:
    """Whether the reward rose within the first tenth and has stayed up since: a long plateau hides it from a trend."""
    values = reward.fair
    if len(values) < 20:
        return False
    start, end = level(values, head(len(values), 0.05, 2)), level(values, tail(len(values), 0.5, 2))
    return end - start > max(0.25 * abs(start), 6 * noise(values))


def _won(group: Group) -> bool:
    """Whether the reward rose and ends at its best: a policy that is sure of what is right is no collapse."""
    reward = group.curve("reward", "success")
    if reward is None or len(reward) < 6:
        return False
    end, start = level(reward.values, tail(len(reward), 0.15, 2)), level(reward.values, head(len(reward), 0.15, 2))
    best = float(smooth(reward.values, max(3, len(reward) // 10) | 1).max())
    return end > start and end - start > 0.8 * (best - start)


def _lengths(group: Group) -> Iterator[Finding]:
    length = group.curve("response_length")
    if length is not None and len(length) >= 6:
        first, last = level(length.values, head(len(length), 0.15, 2)), level(length.values, tail(len(length), 0.15, 2))
        if first > 0 and last < 0.3 * first:
            yield length.at("response_length.collapsed", plain(round(last, 2)), len(length) - 1)
        elif first > 0 and last > 2 * first and trend(length) == "rising":
            yield length.at("response_length.growing", plain(round(last / first, 3)), len(length) - 1)
    cut = group.curve("truncated_fraction")
    if cut is not None and len(cut) >= 3 and level(cut.values, tail(len(cut), 0.25, 2)) > 0.5:
        yield cut.at(
            "response_length.at_limit", plain(round(level(cut.values, tail(len(cut), 0.25, 2)), 4)), len(cut) - 1
        )


def _agreement(group: Group) -> Iterator[Finding]:
    diff = group.curve("logprob_diff")
    if diff is not None:
        middle = level(diff.values, tail(len(diff), 0.5, 1))
        # The multiplicative error sits at one when both sides agree, the absolute difference at zero.
        limit = 1.15 if "mult" in diff.series.raw else 0.1
        if middle > limit:
            yield diff.at("logprob_diff.large", plain(round(middle, 5)), int(np.argmax(diff.values)))
        rest = 1.0 if "mult" in diff.series.raw else 0.0
        if len(diff) >= 8 and trend(diff) == "rising":
            first, last = level(diff.values, head(len(diff), 0.2, 2)), level(diff.values, tail(len(diff), 0.2, 2))
            if last - rest > 3 * max(first - rest, 1e-4) and last - rest > 0.1 * limit:
                yield diff.at("logprob_diff.growing", plain(round(last, 5)), len(diff) - 1)
    ratio = group.curve("importance_ratio")
    if ratio is not None and float(ratio.values.max()) > 10:
        yield ratio.at("logprob_diff.ratio_large", plain(ratio.values.max()), int(np.argmax(ratio.values)))
    correlation = group.curve("logprob_correlation")
    if correlation is not None and level(correlation.values, tail(len(correlation), 0.5, 1)) < 0.95:
        yield correlation.at(
            "logprob_diff.correlation_low", plain(round(float(correlation.values[-1]), 5)), len(correlation) - 1
        )


# ----------
# Inference engines by their status lines: a full cache, a queue that does not drain, load that is not shared.

FULL = 0.95  # of the key-value cache; beyond it requests are preempted or retracted
OFTEN = 0.3  # of the readings
QUEUE = 16  # requests waiting at the median: more than a burst
SKEW = 3.0  # load of the busiest engine over the median of the others
READINGS = 5


def engine_findings(series: list[Series]) -> Iterator[Finding]:
    """Facts about engines; a series is one engine's when its lines carry an engine number."""
    by_metric: dict[str, list[Series]] = defaultdict(list)
    for s in series:
        if s.metric in ("cache_usage", "engine_waiting", "engine_running") and s.count >= READINGS:
            by_metric[s.metric].append(s)
    for s in by_metric["cache_usage"]:
        curve = Curve(s)
        if len(curve) >= READINGS and (curve.values >= FULL).mean() >= OFTEN:
            share = round(float((curve.values >= FULL).mean()), 3)
            yield curve.at("engine.cache_full_fraction", share, int(np.argmax(curve.values)))
    for s in by_metric["engine_waiting"]:
        curve = Curve(s)
        if len(curve) >= READINGS and float(np.median(curve.values)) >= QUEUE:
            yield curve.at("engine.waiting", plain(float(np.median(curve.values))), int(np.argmax(curve.values)))
    yield from _skew(by_metric["engine_running"])


def _skew(running: list[Series]) -> Iterator[Finding]:
    """One engine busy while the others idle: their mean load over the whole time, by engine number or file."""
    curves = [Curve(s) for s in running if s.finite.any()]
    if len(curves) < 2:
        return
    loads = np.array([float(c.values.mean()) for c in curves])
    busiest = int(np.argmax(loads))
    others = float(np.median(np.delete(loads, busiest)))
    if loads[busiest] >= 4 and loads[busiest] / max(others, 0.5) >= SKEW:
        curve = curves[busiest]
        yield curve.at("rl.router_skew", round(loads[busiest] / max(others, 0.5), 2), int(np.argmax(curve.values)))


# ----------
# Mixture of experts: load balance, dead experts, auxiliary losses; and accuracy at chance.


def expert_findings(group: Group) -> Iterator[Finding]:
    """Balance of experts as printed, without the routing itself."""
    cv = group.curve("expert_cv")
    if cv is not None and level(cv.values, tail(len(cv), 0.25, 1)) > 0.3:
        yield cv.at("expert.imbalance_cv", plain(round(level(cv.values, tail(len(cv), 0.25, 1)), 4)), len(cv) - 1)
    most, mean, least = group.curve("expert_max"), group.curve("expert_mean"), group.curve("expert_min")
    if most is not None and mean is not None and mean.values[-1] > 0 and most.values[-1] / mean.values[-1] > 2:
        yield most.at("expert.max_over_mean", plain(round(float(most.values[-1] / mean.values[-1]), 3)), len(most) - 1)
    if least is not None and len(least) >= 3 and not least.values[-3:].any():
        yield least.at("expert.dead", True, len(least) - 1)
    dead = group.curve("dead_experts")
    if dead is not None and dead.values[-1] > 0:
        yield dead.at("expert.dead", plain(dead.values[-1]), len(dead) - 1)
    drop = group.curve("token_drop")
    if drop is not None and level(drop.values, tail(len(drop), 0.25, 1)) > 0.02:
        yield drop.at("expert.tokens_dropped", plain(round(float(drop.values[-1]), 5)), len(drop) - 1)
    aux = group.curve("aux_loss")
    if aux is not None:
        yield aux.at("aux_loss.value", plain(aux.values[-1]), len(aux) - 1)
        if len(aux) >= 6 and not aux.values.any():
            yield aux.at("aux_loss.zero", True, 0)
    for metric, key in (("z_loss", "router.z_loss_growing"), ("router_logits", "router.logits_growing")):
        curve = group.curve(metric)
        if curve is not None and len(curve) >= 8:
            first, last = level(curve.values, head(len(curve), 0.25, 2)), level(curve.values, tail(len(curve), 0.25, 2))
            if first > 0 and last > 3 * first and (divergence(curve) or last > 10 * first):
                yield curve.at(key, plain(round(last / first, 3)), len(curve) - 1)
            elif first > 0 and last > 1.25 * first and _climbs(curve.values):
                yield curve.at("router.z_loss_rising", plain(round(last / first, 3)), len(curve) - 1)


def _climbs(values: np.ndarray) -> bool:
    """Whether a curve rises all along: each of six stretches lies above the one before."""
    levels = [float(np.median(part)) for part in np.array_split(values, 6)]
    return len(values) >= 12 and all(a < b for a, b in pairwise(levels))


def accuracy_findings(group: Group, classes: float | None) -> Iterator[Finding]:
    """Last accuracy; and whether it stays at that of guessing among `classes`."""
    for metric in ("eval_accuracy", "accuracy"):
        curve = group.curve(metric)
        if curve is None:
            continue
        yield curve.at("accuracy.value", plain(curve.values[-1]), len(curve) - 1)
        chance = 1 / classes if classes and classes > 1 else None
        if chance is not None and len(curve) >= 5:
            values = curve.values / (100.0 if curve.values.max() > 1.0 else 1.0)
            late = level(values, tail(len(values), 0.5, 3))
            if (
                abs(late - chance) < max(0.1 * chance, 2 * mad(values) / np.sqrt(len(values)))
                and mad(values) < 0.3 * chance
            ):
                yield curve.at("accuracy.at_chance", plain(round(late, 5)), len(curve) - 1)
