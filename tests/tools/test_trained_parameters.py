"""What part of a model is trained, by what logs print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.profiles.parameters import counts
from traindoctor.agent.reading.run.files import Line, RunFile
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.parameters_tools import trained_parameters


def told(folder: Path, log: str, code: str = "") -> list[float]:
    (folder / "train.log").write_text(log)
    (folder / "train.py").write_text(code)
    return [float(str(e.value)) for e in trained_parameters(Workspace([folder])).evidence]


SMALL = {
    "on one line": ("model: total params 2,000,000, trainable params 1,000\n", [0.0005]),
    "a table of Lightning": ("1.2 K     Trainable params\n6.7 M     Non-trainable params\n6.7 M     Total params\n", [0.000179]),
    "in parts": (
        "number of parameters: 0.15M\nnum decayed parameter tensors: 0, with 0 parameters\n"
        "num non-decayed parameter tensors: 1, with 64 parameters\n",
        [0.000433, 0.000433],
    ),
    "Keras": ("Total params: 1,250,000 (4.77 MB)\nTrainable params: 10 (40.00 B)\nNon-trainable params: 1,249,990\n", [8e-06]),
    "in words": ("model has 110M parameters\nparameters to train: 0\n", [0.0]),
}  # fmt: skip
ALL = {
    "all of it": "number of parameters: 10.65M\nnum decayed parameter tensors: 26, with 10,740,096 parameters\n",
    "most": "Trainable params: 6,700,000\nTotal params: 6,700,100\n",
    "active of experts": "total parameters: 46.7B\nactive parameters: 12.9B\n",
    "an adapter": "LoRA rank 8\ntrainable params: 1,000 || all params: 2,000,000\n",
    "a line of PEFT": "trainable params: 1,000 || all params: 2,000,000 || trainable%: 0.0500\n",
    "one number": "Number of trainable parameters = 124,439,808\n",
    "another word": "params: {'lr': 0.1}\nparameter server at 10.0.0.1:2222\n",
}


@pytest.mark.parametrize(("log", "share"), SMALL.values(), ids=SMALL)
def test_a_part_that_is_told(tmp_path: Path, log: str, share: list[float]) -> None:
    assert told(tmp_path, log) == pytest.approx(share, rel=0.05)


@pytest.mark.parametrize("log", ALL.values(), ids=ALL)
def test_nothing_of_models_that_are_trained_as_a_whole_or_in_part_on_purpose(tmp_path: Path, log: str) -> None:
    assert told(tmp_path, log) == []


@given(st.text(max_size=300))
def test_any_line_is_read(text: str) -> None:
    file = RunFile("a.log", Path("a.log"), "log", 1)
    assert all(c.number >= 0 for c in counts([(file, Line(1, 0, f"params {text}".encode(errors="replace")))]))
