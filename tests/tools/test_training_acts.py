"""What the training program does, by its own statements."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.acts_tools import training_acts

LOG = "step 1 train loss 0.5000\nstep 2 train loss 0.4000\n"
TRAIN = """
import argparse, torch
from torch import nn, optim
from helper import batches
parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", default="adam")
parser.add_argument("--resume", default=None)
args = parser.parse_args()
model = nn.Linear(2, 2)
if args.optimizer == "adam":
    opt = optim.AdamW(model.parameters(), lr=1e-3)
else:
    opt = optim.SGD(model.parameters(), lr=1e-3)
if args.resume:
    model.load_state_dict(torch.load(args.resume))
def unused():
    torch.save(model, "never.pt")
stale = 0
for step, x in enumerate(batches(0, 1)):
    loss = model(x).pow(2).mean()
    loss.backward()
    opt.step()
    print(f"step {step} train loss {loss.item():.4f}")
    stale = 0 if loss < 1 else stale + 1
    if stale > args.patience: break
model.eval()
"""
HELPER = "def batches(rank, world):\n    return list(range(9))[rank::world]\n"


def told(folder: Path, code: str, log: str = LOG) -> dict[str, str]:
    (folder / "train.py").write_text(textwrap.dedent(code))
    (folder / "helper.py").write_text(HELPER)
    (folder / "other.py").write_text("import torch\nprint('something else')\ntorch.compile(1)\n")
    (folder / "run.sh").write_text("python train.py > train.log\n")
    (folder / "train.log").write_text(log)
    result = training_acts(Workspace([folder]))
    return {f"{e.key.removeprefix('code.does.')}@{e.file}": str(e.value) for e in result.evidence}


def test_what_the_program_that_ran_does_and_nothing_that_it_cannot_have_reached(tmp_path: Path) -> None:
    found = told(tmp_path, TRAIN)
    assert found == {
        "optimizer@train.py": "optim.AdamW(model.parameters(), lr=0.001)",
        "print_loss@train.py": "step, loss.item()",
        "stop@train.py": "stale > args.patience",
        "eval_mode@train.py": "model.eval()",
        "shard@helper.py": "rank::world",
    }


@pytest.mark.parametrize("code", ["", "def broken(:\n", "print('nothing of a training', 1)\n"])
def test_where_the_program_does_nothing_that_can_be_read_nothing_is_told(tmp_path: Path, code: str) -> None:
    assert told(tmp_path, code, "epoch 3: all is well\n") == {}


@pytest.mark.parametrize(
    ("line", "act"),
    [
        ("torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "clip"),
        ("accelerator.clip_grad_norm_(model.parameters(), 1.0)", "clip"),
        ("sched = optim.lr_scheduler.CosineAnnealingLR(opt, 9)", "schedule"),
        ("sched = get_cosine_schedule_with_warmup(opt, 1, 9)", "schedule"),
        ("train, val = torch.utils.data.random_split(data, [8, 2])", "split"),
        ("model, opt = accelerator.prepare(model, opt)", "wrap"),
        ("engine, *_ = deepspeed.initialize(model=model)", "wrap"),
        ("for p in model.encoder.parameters(): p.requires_grad = False", "freeze"),
        ("loss = nn.functional.cross_entropy(out, y)", "loss"),
        ("gen.set_state(saved)", "load"),
        ("df.eval('a + b')", None),
        ("prefix = text[0::2]", None),
        ("x.requires_grad = True", None),
        ("table.compile(pattern)", None),
        ("if a < b: pass", None),
    ],
)
def test_one_statement(tmp_path: Path, line: str, act: str | None) -> None:
    code = f"import torch\n{line}\nfor step in range(2):\n    print(f'step {{step}} train loss {{1.0:.4f}}')\n"
    assert {name.partition("@")[0] for name in told(tmp_path, code)} - {"print_loss"} == ({act} if act else set())
