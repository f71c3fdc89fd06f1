"""Shapes that differ because the save was cut otherwise, and shapes of another model."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.weights.checkpoint_tools import split_tensors

from tests.tools.captured import Seen, look

HEAD = """Traceback (most recent call last):
  File "/data/run/train.py", line 51, in main
    model.load_state_dict(state["model"])
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 2638, in load_state_dict
    raise RuntimeError(
RuntimeError: Error(s) in loading state_dict for GPTModel:
"""


def load(
    tmp_path: Path, factor: float = 2, parts: int = 2, now: str = "tensor_model_parallel_size: 1", rows: int = 3
) -> Seen:
    saved = [(f"layers.{i}.mlp.up.weight", (256, 64), (int(256 * factor), 64)) for i in range(rows)]
    saved.append(("layers.0.mlp.down.weight", (64, 256), (64, int(256 * factor))))
    lines = [
        f"\tsize mismatch for {name}: copying a param with shape torch.Size({list(a)}) from checkpoint, "
        f"the shape in current model is torch.Size({list(b)}).\n"
        for name, a, b in saved
    ]
    for rank in range(parts):
        folder = tmp_path / "iter_0000100" / f"mp_rank_{rank:02d}"
        folder.mkdir(parents=True)
        (folder / "model_optim_rng.pt").write_bytes(b"\x80\x02}q\x00.")
    return look(split_tensors, tmp_path, train_log=HEAD + "".join(lines), config_yaml=f"{now}\n")


def test_parts_of_two_loaded_as_one(tmp_path: Path) -> None:
    seen = load(tmp_path)
    assert seen.one("checkpoint.split_otherwise") == "2 parts on disk, 1 now"
    assert "size mismatch for layers.0" in seen.lines("checkpoint.split_otherwise")[0]


def test_parts_of_two_loaded_as_four(tmp_path: Path) -> None:
    seen = load(tmp_path, factor=0.5, now="tensor_model_parallel_size: 4")
    assert seen.one("checkpoint.split_otherwise") == "2 parts on disk, 4 now"


@pytest.mark.parametrize(
    "other",
    [
        {"now": "tensor_model_parallel_size: 2"},  # cut as before: the model became wider
        {"now": "learning_rate: 1.0e-4"},  # nothing tells how many parts there are now
        {"parts": 0},
        {"factor": 1.5},
        {"factor": 4},  # four times as wide is not two parts in one
    ],
)
def test_a_wider_model_is_no_other_cut(other: dict, tmp_path: Path) -> None:
    assert load(tmp_path, **other).result.outcome == "clean"
