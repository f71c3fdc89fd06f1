"""A log that names loaded weights and starts where a new model starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies


def curve(first: float, last: float, n: int = 30) -> str:
    return "".join(f"step {i} loss {last + (first - last) * 0.85**i:.3f}\n" for i in range(n))


def told(folder: Path) -> list[str | None]:
    found = find_anomalies(Workspace([folder])).evidence
    return [e.file for e in found if e.key == "loss.as_untrained"]


@pytest.mark.parametrize("loads", ["loading out/ckpt_900.pt", "weights from out/ckpt_900.pt (step 900)"])
def test_fine_tuning_that_starts_where_pretraining_started(tmp_path: Path, loads: str) -> None:
    (tmp_path / "pretrain.log").write_text(curve(10.52, 3.1))
    (tmp_path / "sft.log").write_text(f"{loads}\n" + curve(10.49, 6.1))
    assert told(tmp_path) == ["sft.log"]


def test_fine_tuning_that_starts_low(tmp_path: Path) -> None:
    (tmp_path / "pretrain.log").write_text(curve(10.52, 3.1))
    (tmp_path / "sft.log").write_text("loading out/ckpt_900.pt\n" + curve(3.3, 2.1))
    assert told(tmp_path) == []


def test_the_logarithm_of_the_vocabulary_with_and_without_weights(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("vocab_size: 32000\nlearning_rate: 1e-4\n")
    (tmp_path / "train.log").write_text("building the model\n" + curve(10.38, 4.0))
    assert told(tmp_path) == []
    (tmp_path / "train.log").write_text("Loaded model weights from /models/base\n" + curve(10.38, 4.0))
    assert told(tmp_path) == ["train.log"]
