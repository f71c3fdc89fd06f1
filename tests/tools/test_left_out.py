"""Parts of a model that no optimizer holds, and accumulated gradients that nothing divides."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards

LIGHTNING = """
import lightning as L, torch
from torch import nn
class Tuned(L.LightningModule):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.norm = nn.LayerNorm(64)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
        {more}
    def forward(self, x):
        return self.head(self.norm(self.encoder(x)))
    def configure_optimizers(self):
        {groups}
"""
PLAIN = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3)
        self.classifier = nn.Linear(8, 10)
        {more}
    def forward(self, x):
        return self.classifier(self.stem(x).mean((2, 3)))
def main():
    model = Net().to("cuda")
    print(sum(p.numel() for p in model.parameters()))
    {groups}
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
"""
ADAM = "return torch.optim.AdamW({}, lr=1e-3)"


def left_out(folder: Path, source: str, groups: str, more: str = "pass") -> list[object]:
    (folder / "train.py").write_text(source.format(groups=groups, more=more))
    return [e.value for e in find_hazards(Workspace([folder])).evidence if e.key == "code.optimizer_leaves_out"]


@pytest.mark.parametrize(
    ("source", "groups", "part"),
    [
        (LIGHTNING, ADAM.format("self.norm.parameters()"), "head"),
        (LIGHTNING, ADAM.format("[p for p in self.head.parameters() if p.requires_grad]"), "norm"),
        (PLAIN, "opt = torch.optim.SGD(model.stem.parameters(), lr=0.1)", "classifier"),
        (PLAIN, "opt = torch.optim.Adam([{'params': model.stem.parameters(), 'lr': 1e-3}])", "classifier"),
    ],
)
def test_a_part_that_no_group_holds(tmp_path: Path, source: str, groups: str, part: str) -> None:
    assert left_out(tmp_path, source, groups) == [part]


@pytest.mark.parametrize(
    ("source", "groups", "more"),
    [
        (LIGHTNING, ADAM.format("self.parameters()"), "pass"),
        (LIGHTNING, ADAM.format("list(self.norm.parameters()) + list(self.head.parameters())"), "pass"),
        (LIGHTNING, ADAM.format("self.norm.parameters()"), "self.head.requires_grad_(False)"),  # kept on purpose
        (LIGHTNING, ADAM.format("self.norm.parameters()"), "self.head.load_state_dict(torch.load('head.pt'))"),
        (LIGHTNING, ADAM.format("[*self.net.parameters(), *self.norm.parameters()]"),
         "self.net = nn.Sequential(encoder, self.head)"),
        (LIGHTNING, ADAM.format("[*self.norm.parameters(), *self.table.parameters()]"),
         "self.table = nn.Embedding(8, 64); self.head.weight = self.table.weight"),
        (LIGHTNING, "return torch.optim.AdamW(self.groups(self.norm.parameters()))", "pass"),  # a helper adds more
        (LIGHTNING, ADAM.format("[*self.norm.parameters(), self.head[0].weight]"), "pass"),
        (PLAIN, "opt = torch.optim.Adam(model.parameters(), lr=1e-3)", "pass"),
        (PLAIN, "model.load_state_dict(torch.load('base.pt')); opt = torch.optim.Adam(model.classifier.parameters())",
         "pass"),
        (PLAIN, "opt = torch.optim.Adam(model.classifier.parameters())", "self.stem.requires_grad_(False)"),
        (PLAIN, "opt = torch.optim.Adam([*model.stem.parameters(), *model.classifier.parameters()])", "pass"),
        (PLAIN, "opt = torch.optim.Adam([*model.stem.parameters(), *model.classifier.parameters()])",
         "self.aux = nn.Linear(8, 2)"),  # never called
    ],
)  # fmt: skip
def test_parts_that_are_held_or_left_on_purpose(tmp_path: Path, source: str, groups: str, more: str) -> None:
    assert left_out(tmp_path, source, groups, more) == []


ACCUMULATED = """
accelerator = Accelerator({options})
for n, batch in enumerate(loader, 1):
    loss = model(**batch).loss{divided}
    accelerator.backward(loss)
    seen.append(loss.item())
    if n % args.accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {{sum(seen) / len(seen):.4f}}")
"""


@pytest.mark.parametrize(
    ("options", "divided", "struck"),
    [
        ("cpu=True", "", True),
        ("mixed_precision='bf16'", "", True),
        ("", " / args.accumulate", False),
        ("gradient_accumulation_steps=args.accumulate", "", False),
        ("**settings", "", False),
    ],
)
def test_an_accelerator_that_nobody_told_to_divide(tmp_path: Path, options: str, divided: str, struck: bool) -> None:
    (tmp_path / "train.py").write_text(textwrap.dedent(ACCUMULATED).format(options=options, divided=divided))
    keys = {e.key for e in find_hazards(Workspace([tmp_path])).evidence}
    assert ("code.unscaled_accumulation" in keys) is struck
