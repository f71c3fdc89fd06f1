"""Metrics out of log lines of every framework, with the exact line and offset of each point."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.curves.curves import curves, line_at
from traindoctor.agent.reading.curves.formats import metric_lines
from traindoctor.agent.reading.curves.formats.metric_lines import LineReader
from traindoctor.agent.reading.curves.formats.metric_text import read_line
from traindoctor.agent.reading.curves.series import KEEP, Track, extremes
from traindoctor.agent.reading.run.files import RunFile
from traindoctor.agent.reading.run.workspace import Workspace

FILE = RunFile("a.log", Path("a.log"), "log", 0)


def said(line: str):
    reading = read_line(line.encode())
    if reading is None:
        return {}
    out = {m.metric: pytest.approx(v, nan_ok=True) for m, _, v, _, _ in reading.values}
    if reading.step is not None:
        out["step"] = reading.step
    if reading.rank is not None:
        out["rank"] = reading.rank
    return out


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{'loss': '2.345', 'grad_norm': '1.2', 'learning_rate': '5e-05', 'epoch': '0.01'}",
         {"loss": 2.345, "grad_norm": 1.2, "learning_rate": 5e-05}),
        ("{'loss': 2.345, 'learning_rate': 5e-05, 'epoch': 0.01}", {"loss": 2.345, "learning_rate": 5e-05}),
        ("I 01:31:39 train] step 9 loss 2.5", {"step": 9, "loss": 2.5}),
        ("I 2026-11-22 01:31:39,123 step 9 loss 2.5", {"step": 9, "loss": 2.5}),
        ("{'loss': nan, 'grad_norm': inf, 'epoch': 0.0}", {"loss": math.nan, "grad_norm": math.inf}),
        ("{'eval_loss': 0.37, 'eval_runtime': 1.06, 'eval_accuracy': 0.5, 'epoch': 1.0}",
         {"eval_loss": 0.37, "eval_speed": 1.06, "eval_accuracy": 0.5}),
        (" [2026-08-22 10:00:00.123456] iteration       10/  500000 | consumed samples:        10240 | elapsed time per "
         "iteration (ms): 1234.5 | throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate: 1.000000E-04 | global batch "
         "size:  1024 | lm loss: 1.034567E+01 | loss scale: 1.0 | grad norm: 1.234 | number of skipped iterations:   0 | "
         "number of nan iterations:   0 |",
         {"step": 10, "step_time": 1.2345, "tflops": 400.1, "learning_rate": 1e-4, "loss": 10.34567, "loss_scale": 1.0,
          "grad_norm": 1.234, "skipped_iterations": 0, "nan_iterations": 0}),
        ("[2026-08-22 10:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=2, lr=[1e-05], mom=[(0.9, 0.95)]",
         {"step": 10, "rank": 0, "skipped_iterations": 2, "learning_rate": 1e-05}),
        ("epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=5.5, CurrSamplesPerSec=5.6, MemAllocated=12.5GB, "
         "MaxMemAllocated=30.0GB",
         {"step": 10, "avg_throughput": 5.5, "throughput": 5.6, "memory": 12.5 * 2**30, "peak_memory": 30 * 2**30}),
        ("[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", {"overflow_scale": 65536}),
        ("[titan] 2024-10-10 10:10:10,111 - root - INFO - \x1b[31mstep:  1  \x1b[32mloss: 12.23456  \x1b[33mgrad_norm:  1.2345  "
         "memory: 40.00GiB(50.67%)  tps: 6,789  tflops: 123.45  mfu: 39.12%",
         {"step": 1, "loss": 12.23456, "grad_norm": 1.2345, "memory": 40 * 2**30, "throughput": 6789, "tflops": 123.45,
          "mfu": 39.12}),
        ("Training epoch 0, iteration 17/99 | lr: 2.699e-06 | global_batch_size: 128 | global_step: 17 | reduced_train_loss: "
         "11.03 | train_step_timing in s: 12.64 | consumed_samples: 2304 | val_loss: 2.861",
         {"step": 17, "learning_rate": 2.699e-06, "loss": 11.03, "step_time": 12.64, "eval_loss": 2.861}),
        ("step 1000: train loss 3.1234, val loss 3.2345", {"step": 1000, "loss": 3.1234, "eval_loss": 3.2345}),
        ("iter 10: loss 4.1234, time 512.34ms, mfu 23.45%", {"step": 10, "loss": 4.1234, "step_time": 0.51234, "mfu": 23.45}),
        ("step:12 - actor/pg_loss:0.1 - actor/ppo_kl:np.float64(0.01) - critic/rewards/mean:0.3 - "
         "response_length/clip_ratio:0.2 - training/global_step:12 - perf/max_memory_allocated_gb:30.0",
         {"step": 12, "policy_loss": 0.1, "kl": 0.01, "reward": 0.3, "truncated_fraction": 0.2, "peak_memory": 30 * 2**30}),
        ("[2026-08-21 10:00:00] model.py:918 - step 12: {'train/loss': 0.02, 'train/grad_norm': 0.3, 'train/lr-pg_0': 1e-6, "
         "'train/step': 12}", {"step": 12, "loss": 0.02, "grad_norm": 0.3, "learning_rate": 1e-6}),
        ("Steps:  10%|#| 100/1000 [01:01<09:09,  2.00it/s, loss=0.1295, lr=0.0001]",
         {"step": 100, "loss": 0.1295, "learning_rate": 1e-4, "bar_step_time": 0.5}),
        ("I1129 16:13:45.602418 8120 solver.cpp:243] Iteration 52160, loss = 2.41732", {"step": 52160, "loss": 2.41732}),
        ("saved to out/last-val_loss=0.01.ckpt, step=10 loss=2.5", {"step": 10, "loss": 2.5}),
        ("step=10 loss=2.5", {"step": 10, "loss": 2.5}),
        ("step 300 loss 2.14 | lr 1e-5", {"step": 300, "loss": 2.14, "learning_rate": 1e-5}),
        ("[rank3]: step=10 loss=nan", {"rank": 3, "step": 10, "loss": math.nan}),
        ("Epoch: [0][ 10/500]  Time  0.5 ( 0.6)  Data  0.1 ( 0.2)  Loss 2.3456e+00 (2.4)  Acc@1  10.00 ( 9.00)",
         {"step": 10, "step_time": 0.5, "data_time": 0.1, "loss": 2.3456, "accuracy": 10.0}),
        ("100/100 [==============================] - 5s 50ms/step - loss: 0.5 - accuracy: 0.8 - val_loss: 0.6",
         {"loss": 0.5, "accuracy": 0.8, "eval_loss": 0.6}),
        ("2024-01-01 10:00:00 | INFO | train_inner | epoch 001:    100 / 9999 loss=10.2, nll_loss=9.8, ppl=912.1, wps=1234, "
         "num_updates=100, lr=1e-04, gnorm=1.5, loss_scale=128",
         {"step": 100, "loss": 10.2, "perplexity": 912.1, "throughput": 1234, "learning_rate": 1e-4, "grad_norm": 1.5,
          "loss_scale": 128}),
        ('{"current_steps": 10, "total_steps": 100, "loss": 1.25, "lr": 5e-05, "epoch": 0.1, "percentage": 10.0}',
         {"step": 10, "loss": 1.25, "learning_rate": 5e-5}),
    ],
)  # fmt: skip
def test_lines(line, expected):
    assert said(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "    loss = 0.5 * x",
        "the loss of connection at 5",
        "[config.py:1000:print]   loss_scale ................... 1.0",
        "python train.py --learning_rate 1e-4 --loss_scale 128 --warmup_steps 10",
        "best loss 2.1 until now",
        "loss_scale = 65536",
        "Namespace(lr=0.1, epochs=10, loss=3.0)",
        "banana: 5, finance 3, information: 2",
        "Loading checkpoint shards: 100%|##| 15/15 [02:11<00:00,  8.78s/it]",
        "number of nan iterations in total was not reported",
        "    (criterion): MSELoss(task_weights=[[1.0]], loss=0.5)",
        "Restoring from out/best-epoch=88-val_loss=0.01.ckpt",
        "no such file: out/Net.epoch=60.lr=0.001.layer=2.pth",
        "Evaluating......epoch:40, time: 8.144092(s)",
    ],
)
def test_what_only_looks_like_a_metric(line):
    assert said(line) == {}


def megatron(i, loss, grad):
    return (
        f" [2026-08-22 10:{i // 60 % 60:02d}:{i % 60:02d}] iteration {i:8d}/ 9000000 | elapsed time per iteration (ms): "
        f"{990 + i % 37}.{i % 10} | learning rate: {1e-4 / (1 + i % 7):.6E} | lm loss: {loss:.6E} | grad norm: {grad:.3f} |\n"
    )


def test_columns_and_line_reader_agree(tmp_path):
    rng = np.random.default_rng(0)
    loss, grad = rng.gamma(4, 1, 4000), rng.gamma(4, 3, 4000)
    text = "".join(megatron(i, loss[i], grad[i]) if i % 50 else "something else\n" for i in range(4000)).encode()
    reader = LineReader()
    reader.read(text[i : i + 100_003] for i in range(0, len(text), 100_003))
    assert reader._learned > 3
    slow: dict[str, list[tuple]] = {}
    offset = 0
    for number, line in enumerate(text.split(b"\n"), 1):
        if reading := read_line(line):
            for m, _, v, _, _ in reading.values:
                slow.setdefault(m.metric, []).append((reading.step, v, number, offset))
        offset += len(line) + 1
    for (metric, _, _), track in reader.tracks.items():
        s = track.finish(FILE)
        got = list(zip(s.steps, s.values, s.lines, s.offsets, strict=True))
        assert len(got) == len(slow[metric]) == s.count
        np.testing.assert_allclose(np.array(got, float), np.array(slow[metric], float), rtol=0)


def test_a_nan_among_columns_is_found(tmp_path):
    lines = [megatron(i, 2.0 + i % 7 / 100, 1.0) for i in range(3000)]
    lines[2500] = lines[2500].replace("lm loss: 2", "lm loss: nan #")
    (tmp_path / "a.log").write_text("".join(lines))
    ws = Workspace([tmp_path])
    s = next(s for s in curves(ws).series if s.metric == "loss")
    bad = int(np.flatnonzero(~s.finite)[0])
    assert (s.lines[bad], s.steps[bad], s.nans) == (2501, 2500, 1)
    assert b"nan #" in line_at(s, bad).data


def test_thinning_keeps_extremes_and_onsets():
    rng = np.random.default_rng(0)
    n = 30 * KEEP
    values = rng.normal(2, 0.01, n)
    values[123_456] = 50.0
    values[234_567] = -3.0
    values[400_000:400_100] = np.nan
    track = Track("loss", "loss")
    at = np.arange(n)
    for i in range(0, n, 7_000):
        part = slice(i, i + 7_000)
        track.extend(at[part].astype(float), values[part], at[part] + 1, at[part] * 10)
    s = track.finish(FILE)
    assert len(s) < 5 * KEEP
    assert (s.count, s.nans) == (n, 100)
    assert {50.0, -3.0} <= set(s.values[s.finite])
    assert s.steps[np.flatnonzero(~s.finite)[0]] == 400_000
    fair = s.steps[s.fair]
    assert np.diff(fair).max() < 4 * np.median(np.diff(fair)), "early points are as dense as late ones"
    assert np.median(s.values[s.fair & s.finite]) == pytest.approx(2, abs=0.001)
    assert np.std(s.values[s.fair & s.finite]) == pytest.approx(0.01, rel=0.2)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=300), st.integers(1, 50))
def test_extremes_never_lose_an_extreme(values, buckets):
    array = np.array(values)
    kept = array[extremes(array, np.unique(np.arange(buckets) * len(array) // buckets))]
    if np.isfinite(array).any():
        assert np.nanmin(kept) == np.nanmin(array)
        assert np.nanmax(kept) == np.nanmax(array)
    assert len(kept) <= 4 * buckets + 2


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_break_the_line_reader(data):
    LineReader().read([data, b"loss: 1\n" + data, data])


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="loss=:0123456789.eE+-naninf |,'{}[]()\n\r\t/%", max_size=300))
def test_no_text_breaks_the_line_reader(text):
    LineReader().read([text.encode()])


def test_progress_redraws_share_their_line(tmp_path):
    bars = "\r".join(f"{i}%|#| {i}/100 [00:01<00:09, 2.0it/s, loss={3 - i / 50:.3f}]" for i in range(1, 50))
    (tmp_path / "a.log").write_text("start\n" + bars + "\nend\n")
    s = next(s for s in curves(Workspace([tmp_path])).series if s.metric == "loss")
    assert (s.count, set(s.lines.tolist()), s.steps[-1]) == (49, {2}, 49)


def test_steps_count_on_over_epochs(tmp_path):
    text = "".join(f"Epoch: [{e}][{i}/50]  Loss {3 - e - i / 100:.3f}\n" for e in range(3) for i in range(0, 50, 10))
    (tmp_path / "a.log").write_text(text)
    s = next(s for s in curves(Workspace([tmp_path])).series if s.metric == "loss")
    assert (np.diff(s.steps) > 0).all()


def test_ranks_are_kept_apart(tmp_path):
    text = "".join(f"[rank{r}]: step {i} loss {2 + r}\n" for i in range(10) for r in range(3))
    (tmp_path / "a.log").write_text(text)
    found = [s for s in curves(Workspace([tmp_path])).series if s.metric == "loss"]
    assert {(s.rank, s.count, float(s.values[0])) for s in found} == {(0, 10, 2.0), (1, 10, 3.0), (2, 10, 4.0)}


def test_parts_of_a_file_join_to_the_whole(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    text = "".join(megatron(i, v, 1.0) + ("note\n" if i % 9 == 0 else "") for i, v in enumerate(rng.gamma(4, 1, 3000)))
    path = tmp_path / "a.log"
    path.write_text(text)
    whole = {k: t.finish(FILE) for k, t in LineReader().read([text.encode()]).items()}
    monkeypatch.setattr(metric_lines, "_PART", 50_000)
    joined = {k: t.finish(FILE) for k, t in metric_lines.read_parts(path, path.stat().st_size).items()}
    assert whole.keys() == joined.keys()
    for key, s in whole.items():
        for column in ("steps", "values", "lines", "offsets"):
            np.testing.assert_array_equal(getattr(s, column), getattr(joined[key], column))


def test_a_console_table_whose_first_column_is_the_step() -> None:
    reading = read_line(b"940\timages/sec: 311.4 +/- 0.7 (jitter = 9.8)\t6.912")
    assert (
        reading and reading.step == 940 and [(m.metric, v) for m, _, v, *_ in reading.values] == [("throughput", 311.4)]
    )
