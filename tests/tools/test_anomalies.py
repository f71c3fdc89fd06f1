"""Each planted anomaly is found at its step; the tools cite the lines that show it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

N = 200


def base(n=N, seed=0, noise=0.01):
    rng = np.random.default_rng(seed)
    return (2 + 6 / (1 + np.arange(n) / 20)) * (1 + rng.normal(0, noise, n))


def gradients(n=N, seed=0):
    return np.random.default_rng(seed).gamma(25, 0.04, n)


def write(folder: Path, name="train.log", form="step {step} | {pairs}", **curves):
    n = len(next(iter(curves.values())))
    lines = []
    for i in range(n):
        pairs = " | ".join(f"{k} {v[i]:.6g}" for k, v in curves.items())
        lines.append(form.format(step=i + 1, pairs=pairs))
    (folder / name).write_text("\n".join(lines) + "\n")


def look(folder: Path):
    result = find_anomalies(Workspace([folder]))
    out: dict[str, list] = {}
    for e in result.evidence:
        out.setdefault(e.key, []).append(e)
    return result, out


def first(found, key):
    assert key in found, sorted(found)
    return found[key][0]


def test_healthy_run_is_clean(tmp_path):
    rate = 1e-4 * np.minimum(1, np.arange(1, N + 1) / 10)
    write(tmp_path, loss=base(), grad_norm=gradients(), lr=rate)
    result, found = look(tmp_path)
    assert result.outcome == "clean", result.summary
    assert first(found, "loss.decreasing").line == N


@pytest.mark.parametrize("at", [20, 120, 199])
def test_nan_after_flat_gradients(tmp_path, at):
    loss = base()
    loss[at:] = np.nan
    write(tmp_path, loss=loss, grad_norm=gradients())
    _, found = look(tmp_path)
    evidence = first(found, "loss.first_nan_step")
    assert (evidence.value, evidence.line, evidence.step) == (at + 1, at + 1, at + 1)
    assert "nan" in evidence.text
    assert "loss.nan_flat_before" in found
    assert "loss.nan_after_ramp" not in found


def test_nan_after_a_gradient_ramp(tmp_path):
    loss, grad = base(), gradients()
    grad[100:112] *= np.geomspace(1.5, 300, 12)
    loss[112:] = grad[112:] = np.nan
    write(tmp_path, loss=loss, grad_norm=grad)
    _, found = look(tmp_path)
    assert first(found, "grad_norm.ramp_before_nan").line == 112
    assert first(found, "loss.first_nan_step").value == 113
    assert first(found, "loss.gss").value > 15


def test_spike_that_recovers(tmp_path):
    loss, grad = base(), gradients()
    loss[150:156] += 6 * np.exp(-np.arange(6) / 2)
    grad[150] = 90
    write(tmp_path, loss=loss, grad_norm=grad)
    _, found = look(tmp_path)
    assert first(found, "loss.spike_step").value == 151
    assert first(found, "loss.spike_recovered").value is True
    assert first(found, "grad_norm.spike_step").value == 151
    assert first(found, "loss.gss").value > 50
    assert "loss.diverged" not in found


def test_divergence(tmp_path):
    loss = base()
    loss[120:] = np.linspace(3, 9, 80)
    write(tmp_path, loss=loss)
    _, found = look(tmp_path)
    assert 119 <= first(found, "loss.diverged").value <= 124
    assert "loss.decreasing" not in found


def test_exact_zero_and_constant(tmp_path):
    loss = base(40)
    loss[20:] = 0.0
    write(tmp_path, loss=loss, grad_norm=np.zeros(40))
    _, found = look(tmp_path)
    assert first(found, "loss.zero").line == 21
    assert first(found, "grad_norm.zero").line == 1
    loss[20:] = 1.234567
    write(tmp_path, loss=loss)
    _, found = look(tmp_path)
    assert first(found, "loss.constant").value == pytest.approx(1.23457)


def test_plateau_at_the_logarithm_of_a_setting(tmp_path):
    rng = np.random.default_rng(0)
    write(tmp_path, loss=np.log(37) + rng.normal(0, 0.002, 60))
    (tmp_path / "config.yaml").write_text("model: x\nnum_classes: 37\n")
    _, found = look(tmp_path)
    assert [(e.value, e.file) for e in found["loss.equals_ln"]] == [(37, "train.log"), (37, "config.yaml")]


def test_overfitting(tmp_path):
    steps = np.arange(1, 201)
    with (tmp_path / "log.txt").open("w") as f:
        for s in steps:
            f.write(f"{{'loss': {2 * np.exp(-s / 60) + 0.05:.4f}, 'grad_norm': 1.0, 'epoch': {s / 40:.2f}}}\n")
            if s % 20 == 0:
                f.write(f"{{'eval_loss': {1.2 + 0.8 * ((s - 80) / 120) ** 2:.4f}, 'epoch': {s / 40:.2f}}}\n")
    _, found = look(tmp_path)
    assert "eval.loss_rising_while_train_falls" in found
    assert "'eval_loss': 1.2000" in first(found, "eval.best_step").text
    assert first(found, "eval.gap_ratio").value > 5


def test_learning_rate_shapes(tmp_path):
    rate = np.full(100, 1e-4)
    rate[60:] = 1e-3
    write(tmp_path, loss=base(100), lr=rate)
    _, found = look(tmp_path)
    assert first(found, "learning_rate.jump_step").value == 61
    write(tmp_path, loss=base(100), lr=np.zeros(100))
    _, found = look(tmp_path)
    assert first(found, "learning_rate.zero").value == 1
    decayed = np.maximum(0, 1e-4 * (1 - np.arange(100) / 99))
    write(tmp_path, loss=base(100), lr=decayed)
    _, found = look(tmp_path)
    assert "learning_rate.zero" not in found


def test_loss_scale_falls_to_its_floor(tmp_path):
    text = "".join(
        f"[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: {2 ** (16 - i)}, reducing to {2 ** (15 - i)}\n"
        for i in range(17)
    )
    (tmp_path / "train.log").write_text(text)
    _, found = look(tmp_path)
    assert first(found, "loss_scale.floor").line == 17
    assert first(found, "loss_scale.skips").value == 17


def test_one_skip_at_the_start_is_nothing(tmp_path):
    write(tmp_path, loss=base(60), loss_scale=np.r_[65536, 32768, np.full(58, 32768)], grad_norm=gradients(60))
    result, _ = look(tmp_path)
    assert result.outcome == "clean"


def test_counts_of_nan_iterations(tmp_path):
    line = " iteration {step:8d}/ 100 | lm loss: {loss:.6E} | number of skipped iterations:   0 | number of nan iterations: {nan:3d} |\n"
    for nan in (0, 3):
        (tmp_path / "a.log").write_text(
            "".join(line.format(step=i, loss=v, nan=nan * (i > 50)) for i, v in enumerate(base(80), 1))
        )
        _, found = look(tmp_path)
        assert ("metrics.nan_count" in found) == bool(nan)
        assert "loss.first_nan_step" not in found


def test_throughput_drop_and_data_share(tmp_path):
    rng = np.random.default_rng(0)
    speed = 1000 + rng.normal(0, 20, N)
    speed[130:] *= 0.4
    seconds = rng.normal(1, 0.02, N)
    write(tmp_path, loss=base(), tokens_per_sec=speed, step_time=seconds, data_time=0.8 * seconds)
    _, found = look(tmp_path)
    assert 125 <= first(found, "throughput.drop_step").value <= 135
    assert first(found, "throughput.drop_ratio").value == pytest.approx(0.4, abs=0.03)
    assert first(found, "data_time.fraction").value == pytest.approx(0.8, abs=0.02)


def test_memory_growth_and_stairs(tmp_path):
    rng = np.random.default_rng(0)
    leak = 20 + 0.05 * np.arange(N) + rng.normal(0, 0.02, N)
    write(tmp_path, form="step {step} | {pairs}GB", loss=base(), memory_allocated=leak)
    _, found = look(tmp_path)
    assert first(found, "memory.growth_per_step").value == pytest.approx(0.05 * 2**30, rel=0.05)
    stairs = np.maximum.accumulate(np.where(np.arange(N) == 60, 34, np.where(np.arange(N) == 140, 40, 30)))
    write(tmp_path, form="step {step} | {pairs}GB", loss=base(), max_memory_allocated=stairs)
    _, found = look(tmp_path)
    assert "memory.growth_per_step" not in found
    assert first(found, "memory.steps_up").value == 2


def test_reinforcement(tmp_path):
    n = 100
    rng = np.random.default_rng(0)
    reward = np.r_[np.linspace(0.2, 0.8, 60), np.linspace(0.75, 0.05, 20), np.full(20, 0.05)] + rng.normal(0, 0.01, n)
    kl = np.r_[np.full(60, 0.05), np.geomspace(0.1, 60, 40)]
    entropy = np.r_[np.linspace(0.8, 0.5, 60), np.linspace(0.4, 0.01, 40)]
    length = np.r_[np.full(60, 400.0), np.linspace(300, 20, 40)]
    write(tmp_path, reward=reward, kl=kl, entropy=entropy, response_length=length, loss=rng.normal(0, 0.01, n))
    _, found = look(tmp_path)
    for key in ("reward.collapsed", "reward.falling", "kl.exploding", "entropy.collapsed", "response_length.collapsed"):
        assert key in found, key
    assert 60 <= first(found, "reward.collapsed").step <= 80
    assert not any(k.startswith("loss.") and k not in ("loss.initial_value", "loss.final_value") for k in found)


def test_resume_that_changed_the_curve(tmp_path):
    rng = np.random.default_rng(0)
    loss = 2 + 6 / (1 + np.arange(100) / 20) + rng.normal(0, 0.01, 100)
    lines = [f"step {i + 1} loss {v:.4f}" for i, v in enumerate(loss)]
    again = [f"step {i + 81} loss {v:.4f}" for i, v in enumerate(np.linspace(5.5, 4.5, 40))]
    text = [*lines, "resuming from checkpoint at step 80", *again]
    (tmp_path / "train.log").write_text("\n".join(text) + "\n")
    _, found = look(tmp_path)
    assert first(found, "resume.curve_jump").line == 102
    assert first(found, "resume.from_step").value == 80
    same = [f"step {i + 81} loss {v:.4f}" for i, v in enumerate(loss[80:] + 0.004)]
    (tmp_path / "train.log").write_text("\n".join([*lines, "resuming from checkpoint at step 80", *same]) + "\n")
    _, found = look(tmp_path)
    assert "resume.curve_jump" not in found


def test_data_that_starts_over_after_a_resume(tmp_path):
    (tmp_path / "train.log").write_text(
        "[data] reader: opening file 0\nstep 1 loss 4.0\n[data] reader: opening file 1\nstep 2 loss 3.9\n"
        "resume from step 2\n[data] reader: opening file 0\nstep 3 loss 3.8\n"
    )
    _, found = look(tmp_path)
    assert first(found, "resume.data_restarted").line == 6
    (tmp_path / "train.log").write_text(
        "[data] reader: opening file 0\nstep 1 loss 4.0\n[data] reader: opening file 1\nstep 2 loss 3.9\n"
        "resume from step 2\n[data] reader: opening file 1\nstep 3 loss 3.8\n"
    )
    _, found = look(tmp_path)
    assert "resume.data_restarted" not in found


def test_variants_whose_loss_is_proportional_to_a_setting(tmp_path):
    (tmp_path / "sweep.csv").write_text(
        "name,gpus,accum,lr,final_loss\na,8,1,1e-4,2.1\nb,8,4,1e-4,8.3\nc,8,16,1e-4,33.9\n"
    )
    _, found = look(tmp_path)
    assert {e.value for e in found["loss.proportional_to"]} == {"gradient_accumulation_steps"}
    assert {e.line for e in found["loss.proportional_to"]} == {2, 4}


def test_variants_in_one_table(tmp_path):
    rows = ["run,use_x,step,loss"]
    rng = np.random.default_rng(0)
    for run, use in (("plain", 0), ("fused", 1)):
        rows += [
            f"{run},{use},{i},{v:.4f}"
            for i, v in enumerate(base(50, noise=0.01) if use else 6 + rng.normal(0, 0.02, 50))
        ]
    (tmp_path / "metrics.csv").write_text("\n".join(rows) + "\n")
    _, found = look(tmp_path)
    assert first(found, "variant.best").value == "fused"
    assert first(found, "variant.worst").text.startswith("plain,0,49,")
    assert {e.variant for e in found["variant.outcome"]} == {"plain", "fused"}


def test_no_curves(tmp_path):
    (tmp_path / "a.log").write_text("hello\n")
    assert find_anomalies(Workspace([tmp_path])).outcome == "not_applicable"


def logged(folder: Path, *rows: str) -> set[str]:
    (folder / "train.log").write_text("\n".join(rows) + "\n")
    return {e.key for e in find_anomalies(Workspace([folder])).evidence}


@pytest.mark.parametrize(
    ("shown", "zero"), [("actor/lr:0.000", False), ("actor/lr:0.0", True), ("actor/lr:0.000e+00", True)]
)
def test_a_rate_that_is_rounded_away_is_not_zero(shown: str, zero: bool, tmp_path: Path) -> None:
    rows = [f"step:{i} - actor/pg_loss:{0.1 / (i + 1):.4f} - {shown} - critic/score/mean:0.{i + 10}" for i in range(9)]
    assert ("learning_rate.zero" in logged(tmp_path, *rows)) is zero


@pytest.mark.parametrize("grows", [True, False])
def test_a_gap_of_probabilities_that_grows(grows: bool, tmp_path: Path) -> None:
    gaps = [0.002 * 1.3**i if grows else 0.002 + 0.0001 * (i % 3) for i in range(20)]
    rows = [f"step:{i} - actor/pg_loss:0.1 - training/rollout_probs_diff_mean:{g:.6f}" for i, g in enumerate(gaps)]
    assert ("logprob_diff.growing" in logged(tmp_path, *rows)) is grows


MEGATRON = "iteration {step}/ 5000 | learning rate: 1.0E-07 | loss scale: {scale} | number of skipped iterations: {skipped} |\n"
DEEPSPEED = "[INFO] step={step}, skipped={skipped}, lr=[1e-05], mom=[[0.9, 0.95]]\n"


@pytest.mark.parametrize(
    ("form", "steps", "scale", "skipped", "always"),
    [
        (MEGATRON, range(1, 21), lambda n: 16384.0, lambda n: 1, True),
        (MEGATRON, range(10, 101, 10), lambda n: 1.0, lambda n: 10, True),
        (DEEPSPEED, range(10, 101, 10), lambda n: 1, lambda n: n, True),
        (MEGATRON, range(1, 18), lambda n: 2.0 ** (33 - n), lambda n: 1, False),  # the search for a scale
        (MEGATRON, range(10, 201, 10), lambda n: 65536.0, lambda n: 1, False),  # one of ten
        (DEEPSPEED, range(1, 60), lambda n: 1, lambda n: 1, False),  # one at the start, and none since
        (MEGATRON, range(1, 60), lambda n: 65536.0, lambda n: int(n != 40), False),
    ],
)
def test_a_scaler_that_skips_every_step(tmp_path, form, steps, scale, skipped, always):
    lines = [form.format(step=n, scale=scale(n), skipped=skipped(n)) for n in steps]
    (tmp_path / "train.log").write_text("".join(lines))
    _, found = look(tmp_path)
    assert ("loss_scale.overflows_always" in found) is always
