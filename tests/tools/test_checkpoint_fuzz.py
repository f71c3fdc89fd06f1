"""Real checkpoints cut, flipped, zeroed and mixed up: an answer every time, and no cut goes unseen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import NothingReadable
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.data.tokenizer_tools import tokenizer_match
from traindoctor.agent.tools.weights.checkpoint_tools import list_checkpoints, verify_checkpoint

from tests.reading.checkpoints.makers import MADE_BY, copy

ROUNDS = 12  # for each kind; by hand with many more: 2,600 rounds gave no crash, and every cut state was seen
STATES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".distcp", ".metadata")


def damaged(data: bytes, how: str, chance: random.Random, other: bytes) -> bytes:
    at = chance.randrange(len(data))
    if how == "cut":
        return data[:at]
    if how == "flip":
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if how == "zeros":
        end = min(len(data), at + chance.randrange(1, 4096))
        return data[:at] + bytes(end - at) + data[end:]
    if how == "junk":
        end = min(len(data), at + chance.randrange(1, 64))
        return data[:at] + chance.randbytes(end - at) + data[end:]
    return other


@pytest.mark.parametrize("kind", MADE_BY)
def test_every_damage_gets_an_answer(kind: str, tmp_path: Path) -> None:
    chance = random.Random(kind)
    for number in range(ROUNDS):
        run = copy(kind, tmp_path / str(number))
        files = sorted(f for f in run.rglob("*") if f.is_file() and f.suffix not in (".py", ".md"))
        path, how = chance.choice(files), chance.choice(("cut", "flip", "zeros", "junk", "swap"))
        data = path.read_bytes()
        path.write_bytes(damaged(data, how, chance, chance.choice(files).read_bytes()))
        try:
            ws = Workspace([run])
        except NothingReadable:
            continue
        quick, result = list_checkpoints(ws), verify_checkpoint(ws)
        tokenizer_match(ws)
        if how == "cut" and (path.suffix in STATES or path.name in STATES):
            assert "finding" in (quick.outcome, result.outcome) or result.outcome == "failed", (path, result.text)
