"""read_metrics: what it lists, many ranks, two runs, bad files beside good ones."""

from __future__ import annotations

import time

from traindoctor.agent.reading.curves.curves import curves
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies, read_metrics


def test_lists_series_with_their_last_line(tmp_path):
    (tmp_path / "train.log").write_text("".join(f"step {i} | loss {3 - i / 50:.3f} | lr 1e-4\n" for i in range(1, 51)))
    result = read_metrics(Workspace([tmp_path]))
    assert [(e.key, e.value, e.line) for e in result.evidence] == [
        ("metrics.series", "loss", 50),
        ("metrics.series", "learning_rate", 50),
    ]
    assert "50 points, step 1 to 50, 2.98 to 2" in result.text


def test_configs_and_code_are_not_curves(tmp_path):
    (tmp_path / "config.yaml").write_text("step: 5\nloss: 3.0\n")
    (tmp_path / "train.py").write_text("step = 5; loss = 3.0\nprint('step: 1 loss: 2')\n")
    assert read_metrics(Workspace([tmp_path])).outcome == "not_applicable"


def test_a_broken_file_leaves_the_others(tmp_path):
    (tmp_path / "a.json").write_text("[" * 5000)
    (tmp_path / "b.csv").write_bytes(b"step,loss\n\xff\xfe,\x00\n1,2\n")
    (tmp_path / "events.out.tfevents.1").write_bytes(b"\xff" * 100)
    (tmp_path / "c.log").write_text("step 1 loss 2.0\n")
    assert {s.file.name for s in curves(Workspace([tmp_path])).series} >= {"c.log", "b.csv"}


def test_a_thousand_ranks(tmp_path):
    for rank in range(1024):
        values = ["nan" if rank == 700 and i > 5 else f"{3 - i / 10:.2f}" for i in range(10)]
        (tmp_path / f"rank{rank}.log").write_text("".join(f"step {i} loss {v}\n" for i, v in enumerate(values)))
    started = time.perf_counter()
    result = find_anomalies(Workspace([tmp_path]))
    nan = [e for e in result.evidence if e.key == "loss.first_nan_step"]
    assert [(e.file, e.line, e.value) for e in nan] == [("rank700.log", 7, 6)]
    assert time.perf_counter() - started < 60
    assert len(result.evidence) < 300


def test_two_runs_are_compared(tmp_path):
    for name, factor in (("bad", 8.0), ("good", 1.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.log").write_text(
            "".join(f"step {i} loss {factor * (3 - i / 20):.4f}\n" for i in range(20))
        )
    ws = Workspace([tmp_path / "bad"], good=[tmp_path / "good"])
    found = {e.key: e for e in find_anomalies(ws).evidence}
    assert found["variant.metric_ratio"].value == 8
    assert not any(e.file == "r2/train.log" for e in find_anomalies(ws).evidence if e.key.startswith("loss."))
