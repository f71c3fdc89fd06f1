"""The detectors on curves: silent on noise that falls, never silent on what is not finite."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.jobs.watching.watched_curves import LossCurve, MemoryCurve, NormCurve

from tests.jobs.watching.specimens import sick, sound, told


def kinds(values: list[float]) -> list[str]:
    curve = LossCurve("loss")
    return [f.kind for v in values for f in curve.take(v, None)]


def falling(seed: int, count: int, noise: float, rate: float, floor: float) -> list[float]:
    r = random.Random(seed)
    return [(floor + 5 * math.exp(-n * rate)) * math.exp(r.gauss(0, noise)) for n in range(count)]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(10, 1500), st.floats(0, 0.3), st.floats(1e-4, 0.1), st.floats(0.01, 3))
def test_noise_that_falls_raises_no_alarm(seed: int, count: int, noise: float, rate: float, floor: float) -> None:
    assert not set(kinds(falling(seed, count, noise, rate, floor))) - {"plateau"}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 1e3), max_size=300), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_what_is_not_finite_is_always_told_once(values: list[float], bad: float) -> None:
    assert kinds([*values, bad, bad]).count("loss_nan") == 1


def test_a_warm_up_that_wobbles_is_no_spike() -> None:
    r = random.Random(1)
    assert not kinds([11.0 + 8 * r.random() for _ in range(40)] + falling(2, 300, 0.02, 0.01, 2.0))


@pytest.mark.parametrize("height", [8.0, 50.0])
def test_a_spike_is_told_and_told_again_after_it_is_over(height: float) -> None:
    values = falling(3, 300, 0.02, 0.02, 1.0)
    values[200] = values[260] = height
    assert kinds(values) == ["loss_spike", "loss_spike"]


def test_one_hard_batch_is_no_spike() -> None:
    values = falling(3, 300, 0.05, 0.02, 1.0)
    values[200] *= 1.6
    assert not kinds(values)


def test_a_schedule_at_its_end_is_no_plateau() -> None:
    flat = [2.0 + 0.01 * (n % 7) for n in range(600)]
    curve = LossCurve("loss")
    assert not [f for v in flat for f in curve.take(v, (1e-5, 1e-3))]
    assert kinds(flat) == ["plateau"]


def test_a_scaler_that_looks_for_its_scale_is_no_alarm() -> None:
    curve = NormCurve("grad_norm")
    assert not [f for v in [math.inf] * 5 + [1.0] * 50 + [math.inf] + [1.0] * 30 for f in curve.take(v, True)]
    assert [f.kind for v in [math.nan] * 20 for f in curve.take(v, True)] == ["grad_nan"]


def test_memory_that_settles_is_no_growth() -> None:
    curve = MemoryCurve("memory")
    assert not [f for n in range(400) for f in curve.take(10e9 + 5e9 * (1 - math.exp(-n / 40)), n)]
    leak = MemoryCurve("memory")
    assert [f.kind for n in range(400) for f in leak.take(10e9 + n * 3e7, n)] == ["memory_growth"]


_SEEDS = range(3)


@pytest.mark.parametrize("name", sound(0))
def test_a_sound_kind_of_run_raises_no_alarm(name: str) -> None:
    for seed in _SEEDS:
        assert [t for t in told(sound(seed)[name]) if t[2] == "alarm"] == []


@pytest.mark.parametrize("name", sick(0))
def test_a_sick_kind_of_run_is_told_in_time(name: str) -> None:
    for seed in _SEEDS:
        case = sick(seed)[name]
        hits = [n - case.onset for n, kind, _ in told(case.rows) if kind in case.kinds and n >= case.onset]
        assert hits, "never told"
        assert hits[0] <= case.within
