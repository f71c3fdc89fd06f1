"""Healthy curves, however noisy, raise no alarm; every planted anomaly is found at its step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.curves.anomalies.finding import groups
from traindoctor.agent.reading.curves.anomalies.learning import progress_findings
from traindoctor.agent.reading.curves.anomalies.loss_anomalies import loss_findings
from traindoctor.agent.reading.curves.anomalies.optimizer_curves import optimizer_findings
from traindoctor.agent.reading.curves.anomalies.reinforcement import reinforcement_findings
from traindoctor.agent.reading.curves.anomalies.resumes import resume_findings
from traindoctor.agent.reading.curves.anomalies.speed_curves import speed_findings
from traindoctor.agent.reading.curves.series import Track
from traindoctor.agent.reading.run.files import RunFile

FILE = RunFile("train.log", Path("train.log"), "log", 0)
FACTS = {
    "loss.initial_value", "loss.final_value", "loss.decreasing", "loss.few_steps", "grad_norm.max", "grad_norm.last",
    "learning_rate.peak", "learning_rate.warmup_seen", "throughput.value",
    "step_time.median", "step_time.jitter_ratio", "memory.steps_up", "eval.gap_ratio",
    "eval.initial_value", "eval.best_value", "eval.final_value",
    "reward.mean_last", "reward.rising", "kl.max", "data_time.fraction", "entropy.falling",
}  # fmt: skip
common = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def found(**curves):
    """{key: [(step, value)]} over curves given as metric=values; all share steps 1..n."""
    series = []
    for metric, values in curves.items():
        track = Track(metric, metric)
        n = len(values)
        at = np.arange(1, n + 1)
        track.extend(at.astype(float), np.asarray(values, float), at, at * 100)
        series.append(track.finish(FILE))
    if "reward" in curves:
        for s in series:
            s.rl = True
    out = {}
    for group in groups(series):
        for findings in (
            loss_findings(group, []), progress_findings(group), optimizer_findings(group), speed_findings(group),
            reinforcement_findings(group), resume_findings(group),
        ):  # fmt: skip
            for f in findings:
                out.setdefault(f.key, []).append((f.step, f.value))
    return out


def alarms(**curves):
    return {k: v for k, v in found(**curves).items() if k not in FACTS}


def healthy_loss(rng, n, start, end, noise, power):
    t = np.arange(n) / max(n - 1, 1)
    base = end + (start - end) * (1 / (1 + 20 * t)) ** power
    return base * np.exp(rng.normal(0, noise, n))


@common
@given(
    seed=st.integers(0, 10**6), n=st.integers(12, 3000), start=st.floats(1.5, 11.5), share=st.floats(0.2, 0.75),
    noise=st.floats(0.001, 0.3), power=st.floats(0.3, 1.5),
)  # fmt: skip
def test_healthy_training_raises_no_alarm(seed, n, start, share, noise, power):
    rng = np.random.default_rng(seed)
    loss = healthy_loss(rng, n, start, share * start, noise, power)
    warmup = max(2, n // 20)
    rate = 1e-4 * np.minimum(1, np.arange(1, n + 1) / warmup) * 0.5 * (1.05 + np.cos(np.arange(n) / n * np.pi))
    grad = (0.5 + 3 * np.exp(-np.arange(n) / (n / 5))) * np.exp(rng.normal(0, 0.25, n))
    times = 1.0 + np.abs(rng.normal(0, 0.08, n))
    times[0] = 30
    memory = np.full(n, 40e9) + rng.normal(0, 1e8, n)
    assert (
        alarms(loss=loss, learning_rate=rate, grad_norm=grad, step_time=times, memory=memory, throughput=1e4 / times)
        == {}
    )


@common
@given(seed=st.integers(0, 10**6), n=st.integers(12, 600), noise=st.floats(0.03, 0.35), drop=st.floats(0.05, 0.4))
def test_noisy_fine_tuning_raises_no_alarm(seed, n, noise, drop):
    rng = np.random.default_rng(seed)
    loss = 1.1 * (1 - drop * np.arange(n) / n) * rng.gamma(1 / noise**2, noise**2, n)
    assert alarms(loss=np.round(loss, 4), grad_norm=rng.gamma(9, 0.1, n)) == {}


@common
@given(seed=st.integers(0, 10**6), n=st.integers(20, 400))
def test_healthy_reinforcement_raises_no_alarm(seed, n):
    rng = np.random.default_rng(seed)
    reward = 0.8 - 0.5 * np.exp(-np.arange(n) / (n / 3)) + rng.normal(0, 0.03, n)
    kl = 0.05 * np.arange(n) / n + np.abs(rng.normal(0, 0.002, n))
    entropy = 0.6 - 0.2 * np.arange(n) / n + rng.normal(0, 0.01, n)
    assert alarms(
        reward=reward, kl=kl, entropy=entropy, loss=rng.normal(0, 0.01, n), response_length=rng.normal(500, 25, n),
        grad_norm=rng.gamma(9, 0.04, n),
    ) == {}  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [40, 400, 5000])
def test_late_window_of_a_long_run_is_not_stuck(seed, n):
    rng = np.random.default_rng(seed)
    track = Track("loss", "lm loss")
    at = np.arange(n)
    track.extend(400_000.0 + at, 2.31 - 0.001 * at / n + rng.normal(0, 0.005, n), at + 1, at * 100)
    keys = {f.key for f in loss_findings(groups([track.finish(FILE)])[0], [])}
    assert keys == {"loss.initial_value", "loss.final_value"}


def test_a_scaler_that_finds_its_range_is_no_alarm():
    rng = np.random.default_rng(1)
    loss = healthy_loss(rng, 100, 8, 3, 0.02, 0.8)
    scale = np.concatenate((np.array([65536, 32768]), np.full(98, 32768.0)))
    grad = rng.gamma(9, 0.1, 100)
    grad[:2] = np.inf
    assert alarms(loss=loss, loss_scale=scale, grad_norm=grad, nan_iterations=np.zeros(100)) == {}
