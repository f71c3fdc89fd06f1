"""Outputs kept over steps, replicas that come apart, gradients that travel too often: in code that has it, and sound."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards

STEP = """
class Net(L.LightningModule):
    def training_step(self, batch, index):
        x, y = batch
        logits = self(x)
        loss = F.cross_entropy(logits, y)
        {kept}
        return loss
"""
LOOP = """
seen = []
for x, y in loader:
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    {kept}
"""
BY_HAND = """
import torch, torch.distributed as dist
{seed}
model = Net()
{equal}
for x, y in loader:
    loss = criterion(model(x), y)
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad.data)
        p.grad.data /= world
    optimizer.step()
"""
TURNS = """
model = DistributedDataParallel(net)
for i, (x, y) in enumerate(loader):
    with {chosen}:
        (criterion(model(x), y) / accum).backward()
    if (i + 1) % accum == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


def hazards(tmp_path: Path, source: str) -> set[str]:
    (tmp_path / "train.py").write_text(textwrap.dedent(source))
    return {e.key.removeprefix("code.") for e in find_hazards(Workspace([tmp_path])).evidence}


@pytest.mark.parametrize(
    "source",
    [
        STEP.format(kept="self.outputs.append({'loss': loss, 'logits': logits})"),
        STEP.format(kept="self.outputs.append((logits, y))"),
        LOOP.format(kept="seen.append(out)"),
    ],
)
def test_outputs_that_are_kept(source: str, tmp_path: Path) -> None:
    assert "graph_kept" in hazards(tmp_path, source)


@pytest.mark.parametrize(
    "source",
    [
        STEP.format(kept="self.outputs.append(logits.detach())"),
        STEP.format(kept="self.outputs.append({'accuracy': accuracy(logits, y).item()})"),
        STEP.format(kept="logits = logits.detach(); self.outputs.append(logits)"),
        STEP.format(kept="self.window.append(logits); self.window.pop(0)"),
        LOOP.format(kept="seen.append(out.argmax(-1).tolist())"),
        LOOP.format(kept="parts = []; parts.append(out)"),
    ],
)
def test_outputs_that_are_let_go(source: str, tmp_path: Path) -> None:
    assert "graph_kept" not in hazards(tmp_path, source)


@pytest.mark.parametrize(
    "seed", ["", "torch.manual_seed(1234 + rank)", "torch.manual_seed(args.seed + dist.get_rank())"]
)
def test_averaged_by_hand_from_unequal_weights(seed: str, tmp_path: Path) -> None:
    assert "unseeded_replicas" in hazards(tmp_path, BY_HAND.format(seed=seed, equal=""))


@pytest.mark.parametrize(
    ("seed", "equal"),
    [
        ("torch.manual_seed(1234)", ""),
        ("torch.manual_seed(0)", "torch.manual_seed(rank)"),  # made alike, then each its own dropout
        ("torch.manual_seed(rank)", "for p in model.parameters():\n    dist.broadcast(p.data, 0)"),
        ("torch.manual_seed(rank)", "model.load_state_dict(torch.load('init.pt'))"),
    ],
)
def test_averaged_by_hand_from_equal_weights(seed: str, equal: str, tmp_path: Path) -> None:
    assert "unseeded_replicas" not in hazards(tmp_path, BY_HAND.format(seed=seed, equal=equal))


@pytest.mark.parametrize(
    "chosen",
    [
        "nullcontext() if i % accum == 0 else model.no_sync()",
        "model.no_sync() if i % accum != 0 else nullcontext()",
        "model.no_sync() if not (i % accum == 0) else nullcontext()",
    ],
)
def test_synchronized_in_the_first_turn_and_stepped_in_the_last(chosen: str, tmp_path: Path) -> None:
    assert "sync_in_other_turn" in hazards(tmp_path, TURNS.format(chosen=chosen))


@pytest.mark.parametrize(
    "chosen",
    [
        "nullcontext() if (i + 1) % accum == 0 else model.no_sync()",
        "model.no_sync() if (i + 1) % accum != 0 else nullcontext()",
        "nullcontext() if last else model.no_sync()",
    ],
)
def test_synchronized_in_the_turn_of_the_step(chosen: str, tmp_path: Path) -> None:
    found = hazards(tmp_path, TURNS.format(chosen=chosen))
    assert not found & {"sync_in_other_turn", "sync_each_micro_batch"}


def test_exchanged_in_every_micro_batch(tmp_path: Path) -> None:
    assert "sync_each_micro_batch" in hazards(tmp_path, TURNS.format(chosen="torch.autocast('cpu')"))
    once = TURNS.format(chosen="torch.autocast('cpu')").replace(
        "    if (i + 1) % accum == 0:\n    ", "    if True:\n    "
    )
    assert "sync_each_micro_batch" not in hazards(tmp_path, once)
