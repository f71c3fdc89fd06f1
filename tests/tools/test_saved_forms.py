"""Saved files in another format than their names say, and keys behind the name of a wrapper."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.checkpoint_tools import list_checkpoints

HEADER = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
SAFE = len(HEADER).to_bytes(8, "little") + HEADER + bytes(4)
STATE = {f"blocks.{n}.weight": torch.ones(2) for n in range(4)}


def told(folder: Path, key: str) -> list[object]:
    return [e.value for e in list_checkpoints(Workspace([folder])).evidence if e.key == key]


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("model.pt", SAFE, ["safetensors"]),
        ("pytorch_model.bin", b"GGUF\x03\0\0\0" + bytes(64), ["a GGUF file"]),
        ("model.safetensors", SAFE, []),
        ("model.pt", b"\x80\x02}q\x00." + bytes(64), []),
    ],
)
def test_what_the_first_bytes_say(tmp_path: Path, name: str, data: bytes, value: list[str]) -> None:
    (tmp_path / name).write_bytes(data)
    assert told(tmp_path, "checkpoint.other_format") == value


def test_a_torch_file_called_safetensors(tmp_path: Path) -> None:
    torch.save(STATE, tmp_path / "model.safetensors")
    assert told(tmp_path, "checkpoint.other_format") == ["a torch file"]
    (tmp_path / "model.safetensors").rename(tmp_path / "model.pt")
    assert told(tmp_path, "checkpoint.other_format") == []


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_keys_behind_the_name_of_a_wrapper(tmp_path: Path, prefix: str) -> None:
    for name, state in (("base", {prefix + k: v for k, v in STATE.items()}), ("tuned", STATE)):
        (tmp_path / name).mkdir()
        torch.save({"model": state, "epoch": 9}, tmp_path / name / "model_latest.pth.tar")
    assert told(tmp_path, "checkpoint.wrapped_keys") == [prefix]


def test_saves_of_one_kind_and_of_two_models(tmp_path: Path) -> None:
    for name, state in (("a", {"module." + k: v for k, v in STATE.items()}), ("b", {"head.weight": torch.ones(2)})):
        (tmp_path / name).mkdir()
        torch.save(state, tmp_path / name / "model.pt")
    assert told(tmp_path, "checkpoint.wrapped_keys") == []
