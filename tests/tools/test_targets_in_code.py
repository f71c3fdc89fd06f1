"""Targets that are the inputs: five ways to write it, and sound code that looks like it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards

LOSS = "import torch.nn.functional as F\ndef step(model, x, y):\n    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())\n"
FAULTY = {
    "two slices": """
        def get_batch(data, ix):
            x = torch.stack([data[i:i + n] for i in ix])
            y = torch.stack([data[i:i + n] for i in ix])
            return x, y
    """,
    "a copy": """
        def collate(rows):
            inputs = pad(rows)
            labels = inputs.clone()
            return inputs, labels
    """,
    "an item": """
        class Text:
            def __getitem__(self, i):
                chunk = self.data[i:i + self.n]
                return torch.tensor(chunk), torch.tensor(chunk)
    """,
    "the same end cut twice": """
        def split(chunk):
            x, y = chunk[:-1], chunk[:-1]
            return x, y
    """,
    "a dict": """
        def encode(rows):
            ids = tokenizer(rows)
            return {"input_ids": ids, "labels": copy.deepcopy(ids)}
    """,
}
SOUND = {
    "shifted": """
        def get_batch(data, ix):
            x = torch.stack([data[i:i + n] for i in ix])
            y = torch.stack([data[i + 1:i + n + 1] for i in ix])
            return x, y
    """,
    "cut at both ends": """
        def split(chunk):
            x, y = chunk[:-1], chunk[1:]
            return x, y
    """,
    "gaps to fill": """
        def collate(rows):
            inputs = pad(rows)
            labels = inputs.clone()
            labels[~chosen] = -100
            return inputs, labels
    """,
    "shifted at the loss": """
        def collate(rows):
            inputs = pad(rows)
            labels = inputs.clone()
            return inputs, labels
        def loss(logits, labels):
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    """,
    "a model that shifts": """
        from transformers import AutoModelForCausalLM
        def encode(rows):
            ids = tokenizer(rows)
            return {"input_ids": ids, "labels": ids.copy()}
    """,
    "an autoencoder": """
        def reconstruct(x):
            y = x
            return y
    """,
    "a label of its own": """
        def __getitem__(self, i):
            row = self.rows[i]
            return row.text, row.label
    """,
}


def lines(folder: Path, code: str) -> list[int]:
    (folder / "train.py").write_text(LOSS + textwrap.dedent(code))
    return [e.line or 0 for e in find_hazards(Workspace([folder])).evidence if e.key == "code.targets_are_inputs"]


@pytest.mark.parametrize("code", FAULTY.values(), ids=FAULTY)
def test_targets_that_are_the_inputs(tmp_path: Path, code: str) -> None:
    assert len(lines(tmp_path, code)) >= 1


@pytest.mark.parametrize("code", SOUND.values(), ids=SOUND)
def test_sound_targets(tmp_path: Path, code: str) -> None:
    assert lines(tmp_path, code) == []
