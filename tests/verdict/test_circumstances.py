"""What stands in ordinary code and settings is a circumstance: alone it is called the cause of nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

FALLING = "".join(f"step {n} loss {3 - n / 200:.3f} time 1.0s\n" for n in range(1, 300))
LOOP = """
def main():
    for batch in loader:
        opt.zero_grad()
        loss = model(batch)
        loss.backward()
        opt.step()
"""
ORDINARY = {
    "the driver is asked once": ("train.py", "import subprocess\ndef show():\n    print(subprocess.check_output(['nvidia-smi']))\nshow()\n" + LOOP),
    "a prefix is taken away": ("train.py", "def load(m, sd):\n    sd = {k[6:]: v for k, v in sd.items() if k.startswith('model.')}\n    m.load_state_dict(sd, strict=False)\n" + LOOP),
    "a position is passed over": ("data.py", "def make(cfg, train_state, data):\n    return DataLoader(data, batch_size=4, num_workers=4)\n"),
    "an optimizer is made anew": ("train.py", "def fit(model, optimizer):\n    optimizer = type(optimizer)(model.parameters(), lr=1e-3)\n" + LOOP),
    "a mixture of experts as published": ("config.json", '{"model_type": "mixtral", "num_local_experts": 8, "router_aux_loss_coef": 0.001, "output_router_logits": false}'),
    "many workers": ("run.sh", "torchrun --nproc_per_node 8 train.py --num_workers 32\n"),
}  # fmt: skip


QUESTIONS = ("is this run fine?", "the loss does not go down", "it crashed", "training is slow")


@pytest.mark.parametrize("which", ORDINARY)
def test_a_circumstance_alone_is_no_cause(which: str, tmp_path: Path) -> None:
    name, text = ORDINARY[which]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).write_text(text)
    (tmp_path / "run" / "train.log").write_text(FALLING)
    workspace = Workspace([tmp_path / "run"])  # what is read for one question serves the next
    for question in QUESTIONS:
        *_, last = diagnose(workspace, question, state=tmp_path / "state", history=False)
        assert isinstance(last, ReportReady)
        assert last.report.status not in ("confirmed", "likely"), (question, last.report.root_cause.id)
