"""Real short runs of a small script: sound, with its loss cut off from the model, with its input ignored."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from traindoctor.agent.errors import ToolError
from traindoctor.agent.shell import Completed
from traindoctor.agent.tools.experiments import overfit_one_batch, zero_input_baseline
from traindoctor.agent.types import ToolResult
from traindoctor.agent.workspace import Workspace

pytestmark = pytest.mark.real

SCRIPT = """
import argparse, json, os, torch
p = argparse.ArgumentParser()
for flag in ("--one-batch", "--zero-input", "--detached", "--ignores", "--nan", "--quiet"):
    p.add_argument(flag, action="store_true")
p.add_argument("--out", default="")
a = p.parse_args()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
truth = torch.randn(8, 4)
x0 = torch.randn(16, 8)
for step in range(200):
    x = x0 if a.one_batch else torch.randn(16, 8)
    y = (x @ truth).argmax(-1)
    if a.zero_input or a.ignores:
        x = torch.zeros_like(x)
    logits = model(x.detach())
    if a.detached:  # labels shuffled anew each step: nothing to learn
        y = y[torch.randperm(len(y))]
    loss = torch.nn.functional.cross_entropy(logits, y)
    if a.nan and step == 50:
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not a.quiet:
        print(f"step {step} loss {loss.item():.6f}", flush=True)
if a.out:
    assert a.out == os.environ["DOCTOR_OUTPUT"] and os.path.isdir(a.out)
"""


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write the script and a declaration of the user's, named by the environment; gives the run's workspace."""

    def make(**sections: list[str]) -> Workspace:
        home = tmp_path / "mine"
        home.mkdir(exist_ok=True)
        (home / "train.py").write_text(SCRIPT)
        text = f"command = [{sys.executable!r}, 'train.py']\nseconds = 120\n"
        for name, arguments in sections.items():
            text += f"[{name}]\narguments = {arguments!r}\nenvironment = {{OMP_NUM_THREADS = '1'}}\n"
        (home / "doctor.toml").write_text(text)
        monkeypatch.setenv("DOCTOR_EXPERIMENTS", str(home / "doctor.toml"))
        return workspace(tmp_path)

    return make


def workspace(tmp_path: Path) -> Workspace:
    """A run that has a plain log and nothing else."""
    run = tmp_path / "run"
    run.mkdir(exist_ok=True)
    (run / "train.log").write_text("step 1 loss 1.4\n")
    return Workspace([run], live=True)


def one(result: ToolResult, key: str):
    """The value of a key."""
    return next(e.value for e in result.evidence if e.key == key)


def test_a_sound_pipeline_learns_one_batch(declare) -> None:
    result = overfit_one_batch(declare(overfit_one_batch=["--one-batch", "--out", "{output}"]))
    assert result.outcome == "clean", result.summary
    assert one(result, "experiment.overfits") is True and one(result, "experiment.overfit_ratio") < 0.1
    assert result.evidence[0].kind == "command" and "loss" in result.evidence[0].text


def test_shuffled_labels_are_not_learned(declare) -> None:
    result = overfit_one_batch(declare(overfit_one_batch=["--one-batch", "--detached"]))
    assert result.outcome == "finding" and one(result, "experiment.overfits") is False


def test_a_loss_that_is_not_finite(declare) -> None:
    result = overfit_one_batch(declare(overfit_one_batch=["--one-batch", "--nan"]))
    assert result.outcome == "finding" and one(result, "experiment.overfit_not_finite") is True


def test_zeroed_input_is_worse_than_the_real_one(declare) -> None:
    result = zero_input_baseline(declare(zero_input=["--zero-input"], real_input=[]))
    assert result.outcome == "clean", result.summary
    assert one(result, "experiment.ignores_input") is False and one(result, "experiment.zero_input_ratio") > 1.2


def test_an_input_that_is_ignored(declare) -> None:
    result = zero_input_baseline(declare(zero_input=["--zero-input", "--ignores"], real_input=["--ignores"]))
    assert result.outcome == "finding" and one(result, "experiment.ignores_input") is True


def test_out_of_time_crash_and_silence_are_told(declare) -> None:
    late = overfit_one_batch(declare(overfit_one_batch=["--one-batch", "--quiet"]), seconds=0.3)
    assert late.outcome == "failed" and "ran out of time" in late.summary
    crash = overfit_one_batch(declare(overfit_one_batch=["--no-such-flag"]))
    assert crash.outcome == "failed" and "ended with code 2" in crash.summary
    silent = overfit_one_batch(declare(overfit_one_batch=["--quiet"]))
    assert silent.outcome == "failed" and "0 points" in silent.summary


def test_a_declaration_in_the_runs_folder_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_EXPERIMENTS", raising=False)
    ws = workspace(tmp_path)
    trap = tmp_path / "trap"
    (tmp_path / "run" / "doctor.toml").write_text(
        f"command = ['touch', {str(trap)!r}]\n[overfit_one_batch]\n[zero_input]\n"
    )
    ws = Workspace([tmp_path / "run"], live=True)
    for tool in (overfit_one_batch, zero_input_baseline):
        result = tool(ws)
        assert result.outcome == "not_applicable" and "in a file of yours" in result.summary
        assert "By hand (torch)" in result.text
    assert not trap.exists()
    assert not {"config", "file", "path"} & set(overfit_one_batch.arguments.model_fields), "no argument may name it"


def test_instructions_fit_the_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCTOR_EXPERIMENTS", raising=False)
    workspace(tmp_path)
    (tmp_path / "run" / "train.py").write_text("from transformers import Trainer, TrainingArguments\n")
    assert "select(range(" in overfit_one_batch(Workspace([tmp_path / "run"], live=True)).text
    (tmp_path / "run" / "train.py").write_text("import lightning as L\nL.Trainer()\n")
    assert "overfit_batches=1" in overfit_one_batch(Workspace([tmp_path / "run"], live=True)).text


def test_not_on_a_machine_that_is_not_the_runs(declare, tmp_path: Path) -> None:
    declare(overfit_one_batch=["--one-batch"])
    assert overfit_one_batch(Workspace([tmp_path / "run"], live=False)).outcome == "not_applicable"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("command = []", "command"), ("x = 1\ncommand = ['a']", "x"), ("command = ['a'", "doctor.toml"),
        ("command = ['a']\nseconds = 1e9", "seconds"), ("command = 'rm -rf'", "command"),
        ("command = ['a']\n[overfit_one_batch]\nshell = 'x'", "shell"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_told(text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ws = workspace(tmp_path)
    (tmp_path / "doctor.toml").write_text(text)
    monkeypatch.setenv("DOCTOR_EXPERIMENTS", str(tmp_path / "doctor.toml"))
    with pytest.raises(ToolError, match=why):
        overfit_one_batch(ws)


class Timed:
    """A machine on which the command logs a loss until its time is over."""

    def __init__(self, losses: list[float]) -> None:
        self._losses = losses

    def run(self, argv: list[str], timeout: float, env: object = None, cwd: object = None) -> Completed:
        text = "".join(f"step {n} loss {v:.6f}\n" for n, v in enumerate(self._losses))
        return Completed(tuple(argv), None, text)


def test_a_command_that_was_stopped_is_not_judged_by_what_it_had_not_reached(declare, tmp_path: Path) -> None:
    declare(overfit_one_batch=["--one-batch"], zero_input=[], real_input=[])
    slow = Workspace([tmp_path / "run"], live=True, shell=Timed([1.4 - n / 1000 for n in range(20)]))
    for tool in (overfit_one_batch, zero_input_baseline):
        stopped = tool(slow)
        assert stopped.outcome == "failed" and "time limit" in stopped.summary
    fast = Workspace([tmp_path / "run"], live=True, shell=Timed([1.4 / 2**n for n in range(20)]))
    assert overfit_one_batch(fast).outcome == "clean"
