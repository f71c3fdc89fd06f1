"""Faults found by reading the code once more, each with the input that showed it."""

from __future__ import annotations

import pytest
from traindoctor.agent.reading.checkpoints.formats.symbols import dangerous, known
from traindoctor.agent.reading.datasets.batches import dumps
from traindoctor.agent.reading.memory.model_config import of_config
from traindoctor.agent.reading.run.files import Line


@pytest.mark.parametrize(
    "name", ["accelerate.utils.launch.subprocess.Popen", "transformers.trainer.os.system", "deepspeed.launcher.runner.sys.exit"]
)
def test_a_path_through_a_known_package_to_a_dangerous_module(name: str) -> None:
    assert not known(name) and dangerous(name)


def test_a_tensor_whose_middle_was_left_out_says_nothing_of_the_whole() -> None:
    cut = Line(1, 0, b"labels=tensor([-100, -100, -100, ..., -100, -100, -100])")
    whole = Line(1, 0, b"labels=tensor([-100, -100, -100, -100])")
    assert [d.numbers for d in dumps([cut])] == [[]] and [len(d.numbers) for d in dumps([whole])] == [4]


def test_heads_below_one_are_no_heads() -> None:
    described = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 0.5,
                 "vocab_size": 99, "intermediate_size": 128}  # fmt: skip
    of_config(described)  # divides by the number of heads
