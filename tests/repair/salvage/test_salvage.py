"""`doctor salvage reset-optimizer`: a new checkpoint, whole or not at all; the old one stays as it was."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.repair.salvage import reset_optimizer as salvage

from tests.reading.checkpoints.makers import made as made_checkpoints
from tests.tools.training_runs import made


@pytest.fixture(scope="module")
def runs(root_of_tests) -> Path:
    return made(root_of_tests)


@pytest.fixture(scope="module")
def root_of_tests(request) -> Path:
    return request.config.rootpath


def digest(path: Path) -> dict[str, str]:
    """Every file below a path with its bytes' digest."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return {str(p.relative_to(path)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def in_torch(code: str, *arguments: object) -> str:
    """Run torch in a process of its own: the tests do not import it."""
    argv = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.strip()


def test_hugging_face_folder(runs, tmp_path, doctor):
    old, new = runs / "hf" / "checkpoint-3", tmp_path / "new"
    before = digest(old)
    done = doctor("salvage", "reset-optimizer", old, "-o", new)
    assert done.returncode == 0, done.stderr
    assert digest(old) == before
    left_out = {"optimizer.pt", "scheduler.pt"}
    assert digest(new) == {k: v for k, v in before.items() if k not in left_out}
    assert "optimizer.pt" in done.stdout and f"--resume_from_checkpoint {new}" in done.stdout
    assert all((old / f).stat().st_ino != (new / f).stat().st_ino for f in digest(new))
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


def test_the_trainer_goes_on_from_it(runs, tmp_path, doctor):
    new = tmp_path / "checkpoint-3"
    assert doctor("salvage", "reset-optimizer", runs / "hf" / "checkpoint-3", "-o", new).returncode == 0
    code = """
import sys, torch
from torch.utils.data import Dataset
from transformers import GPT2LMHeadModel, Trainer, TrainingArguments
class Rows(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        ids = torch.full((16,), i % 50)
        return {"input_ids": ids, "labels": ids}
arguments = TrainingArguments(sys.argv[2], max_steps=5, per_device_train_batch_size=4, use_cpu=True, report_to=[],
                              save_strategy="no", disable_tqdm=True)
trainer = Trainer(GPT2LMHeadModel.from_pretrained(sys.argv[1]), arguments, train_dataset=Rows())
trainer.train(resume_from_checkpoint=sys.argv[1])
print(trainer.state.global_step, max(s["step"].item() for s in trainer.optimizer.state.values()))
"""
    assert in_torch(code, new, tmp_path / "out").splitlines()[-1] == "5 2.0"  # two steps with moments of its own


def test_plain_files_and_lightning(runs, tmp_path, doctor):
    """As torch reads them: one process for all three."""
    old, lightning = runs / "healthy" / "ckpt_step_30.pt", tmp_path / "new.ckpt"
    before, made = digest(old), (tmp_path / "bare.pt", tmp_path / "scheduled.pt")
    for new, options, gone in zip(made, ((), ("--keep-scheduler",)), (["optimizer", "scheduler"], ["optimizer"]), strict=True):
        done = doctor("salvage", "reset-optimizer", old, "-o", new, "--json", *options)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["left_out"] == gone and digest(old) == before
    assert doctor("salvage", "reset-optimizer", runs / "lightning" / "step=5.ckpt", "-o", lightning).returncode == 0
    code = """
import sys, torch
a, b, c, state = (torch.load(p, weights_only=True) for p in sys.argv[1:])
for new in (b, c):
    print(list(new), all(torch.equal(a["model"][k], new["model"][k]) for k in a["model"]), list(a["model"]) == list(new["model"]))
print(state["optimizer_states"], state["lr_schedulers"], state["global_step"])
"""
    assert in_torch(code, old, *made, lightning).splitlines() == [
        "['model', 'step'] True True", "['model', 'step', 'scheduler'] True True", "[] [] 5",
    ]  # fmt: skip


@pytest.mark.parametrize("stage", ["zero1", "zero2"])
def test_deepspeed(tmp_path, doctor, stage):
    old, new = made_checkpoints(stage), tmp_path / "new"
    done = doctor("salvage", "reset-optimizer", old, "-o", new)
    assert done.returncode == 0, done.stderr
    assert "load_optimizer_states=False" in done.stdout and "fp32 master" in done.stdout
    kept = digest(new)
    assert kept == {k: v for k, v in digest(old).items() if not k.endswith("optim_states.pt")}
    assert any(k.endswith("mp_rank_00_model_states.pt") for k in kept)


@pytest.mark.parametrize(("kind", "advice"), [
    ("zero3", "zero_to_fp32.py"),
    ("megatron", "--no-load-optim"),
    ("megatron_dist", "--no-load-optim"),
    ("dcp", "dcp.load"),
])  # fmt: skip
def test_kinds_that_are_not_rewritten(tmp_path, doctor, kind, advice):
    done = doctor("salvage", "reset-optimizer", made_checkpoints(kind), "-o", tmp_path / "new")
    assert done.returncode == 2 and advice in done.stderr and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(runs, tmp_path, doctor):
    old = runs / "hf" / "checkpoint-3"
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to("nowhere")
    for name in ("file", "link"):
        done = doctor("salvage", "reset-optimizer", old, "-o", tmp_path / name)
        assert done.returncode == 2 and "exists" in done.stderr
    assert (tmp_path / "file").read_text() == "mine"
    inside = doctor("salvage", "reset-optimizer", old, "-o", old / "new")
    assert inside.returncode == 2 and "lies inside" in inside.stderr
    assert doctor("salvage", "reset-optimizer", tmp_path / "none", "-o", tmp_path / "new").returncode == 2


def test_no_optimizer_to_leave_out(runs, tmp_path, doctor):
    done = doctor("salvage", "reset-optimizer", runs / "healthy" / "grads.pt", "-o", tmp_path / "new.pt")
    assert done.returncode == 2 and "no optimizer state found" in done.stderr


class _Hostile:
    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.canary),)


def test_a_hostile_file_is_refused_before_torch_sees_it(tmp_path, doctor):
    path, canary = tmp_path / "model.pt", tmp_path / "canary"
    path.write_bytes(pickle.dumps({"model": {}, "optimizer": _Hostile(canary)}))
    done = doctor("salvage", "reset-optimizer", path, "-o", tmp_path / "new.pt")
    assert done.returncode == 2 and "refused" in done.stderr and done.stderr.count("\n") == 1
    assert not canary.exists() and not (tmp_path / "new.pt").exists()


def test_links_out_and_pipes_are_refused(runs, tmp_path, doctor):
    for name, make in (("link", lambda p: p.symlink_to("/etc/hostname")), ("pipe", os.mkfifo)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "optimizer.pt").write_bytes(b"x")
        make(folder / "model.safetensors")
        done = doctor("salvage", "reset-optimizer", folder, "-o", tmp_path / "new")
        assert done.returncode == 2 and not (tmp_path / "new").exists()


def test_a_failure_midway_leaves_nothing(runs, tmp_path, monkeypatch):
    count = [0]

    def failing(source: Path, target: Path, progress) -> None:
        count[0] += 1
        if count[0] == 3:
            raise OSError(28, "No space left on device")
        target.write_bytes(b"x")

    monkeypatch.setattr(salvage, "copy_bytes", failing)
    with pytest.raises(UsageError, match="No space"):
        salvage.reset_optimizer(runs / "hf" / "checkpoint-3", tmp_path / "new", False, lambda _n: None)
    assert not list(tmp_path.iterdir())
