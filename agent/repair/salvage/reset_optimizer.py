"""A new checkpoint without optimizer state, its weights bit for bit those of the old one."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote

from ...core.errors import UsageError
from ...reading.checkpoints.formats.symbols import verdict
from ...reading.checkpoints.weights import state_of
from ...reading.run.workspace import Workspace
from .copying import Progress, beside, copy_bytes, publish, refuse_existing, refuse_full

# ----------
# What of a checkpoint is optimizer state, and what can be written without it.


_OPTIMIZER = re.compile(
    r"^(?:rank\d+-of-\d+-)?(?:pytorch_)?optim(?:izer)?(?:_\d+)?(?:\.(?:pt|bin|safetensors))?(?:_.*)?$"
)
_SCHEDULER = re.compile(r"^(?:lr_)?scheduler(?:_\d+)?\.(?:pt|bin)$")
_ZERO = re.compile(r"_optim_states\.pt$")
_STAGE_3 = re.compile(r"^(?:bf16_|fp16_)?zero_pp_rank_\d+_mp_rank_\d+_model_states\.pt$")
_MEGATRON = re.compile(r"^(?:model_optim_rng\.pt|distrib_optim\.pt|latest_checkpointed_iteration\.txt)$")
_SINGLE = (".pt", ".pth", ".ckpt", ".bin", ".tar")


@dataclass(slots=True)
class ResetPlan:
    """Which files of a checkpoint are copied and which are left out.

    Attributes:
        kind: hf, deepspeed, single.
        keep, omit: files relative to the checkpoint, in order.
        meaning: what a person must know about the result.
        resume: commands or code that go on from it; NEW stands for the output in a shell, NEW_TEXT in Python.
    """

    kind: str
    keep: list[Path] = field(default_factory=list)
    omit: list[Path] = field(default_factory=list)
    meaning: list[str] = field(default_factory=list)
    resume: list[str] = field(default_factory=list)


def plan_reset(checkpoint: Path, keep_scheduler: bool) -> ResetPlan:
    """What to do with a checkpoint.

    Raises:
        UsageError: it is of a kind that is not rewritten (with the framework's own way), or holds no optimizer state.
    """
    if checkpoint.is_file():
        if checkpoint.suffix.lower() not in _SINGLE:
            raise UsageError(f"{checkpoint.name}: no file that torch.save writes", f"known: {', '.join(_SINGLE)}")
        return ResetPlan("single")
    files = list(_files(checkpoint))
    names = {f.name for f in files}
    _refuse(checkpoint, files, names)
    zero = [f for f in files if _ZERO.search(f.name)]
    kind = "deepspeed" if zero else "hf"
    omit = [f for f in files if f in zero or _left_out(f, keep_scheduler)]
    if not any(f in zero or not _SCHEDULER.match(f.name) for f in omit):
        raise UsageError(f"{checkpoint}: no optimizer state found", "it can be used as it is")
    plan = ResetPlan(kind, [f for f in files if f not in omit], omit)
    _advise(plan, keep_scheduler)
    return plan


def _files(folder: Path) -> list[Path]:
    """Regular files below a folder, relative to it.

    Raises:
        UsageError: something that is not a regular file, or a link that leads out of the folder.
    """
    found = []
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            target = path.resolve()
            if not target.is_relative_to(root) or not target.is_file():
                raise UsageError(f"{path}: a link that leads out of the checkpoint", "copy what it leads to first")
        elif stat.S_ISDIR(mode):
            continue
        elif not stat.S_ISREG(mode):
            raise UsageError(f"{path}: not a regular file")
        found.append(path.relative_to(folder))
    return found


def _refuse(checkpoint: Path, files: list[Path], names: set[str]) -> None:
    if any(_MEGATRON.match(n) for n in names) or any(f.parts[0].startswith("iter_") for f in files):
        raise UsageError(
            f"{checkpoint}: a Megatron checkpoint is not rewritten",
            "resume it with --no-load-optim --no-load-rng, which leaves the optimizer out on loading; "
            "--finetune also starts the iterations anew",
        )
    if any(_STAGE_3.match(n) for n in names):
        raise UsageError(
            f"{checkpoint}: under ZeRO stage 3 the weights themselves lie in the optimizer's shards",
            "gather them with `python zero_to_fp32.py . OUTPUT` in the checkpoint's folder, and start from its output",
        )
    distributed = [f for f in files if f.suffix == ".distcp"]
    if distributed and not any(_left_out(f, True) for f in distributed):
        raise UsageError(
            f"{checkpoint}: a distributed checkpoint is not rewritten",
            'load the weights alone: dcp.load({"model": state}, checkpoint_id=...), or in torchtitan '
            "--checkpoint.exclude_from_loading=optimizer,lr_scheduler",
        )


def _left_out(file: Path, keep_scheduler: bool) -> bool:
    """Whether a file is optimizer (or scheduler) state: by its own name or that of its folder (`optimizer_0/`)."""
    if any(_OPTIMIZER.match(part) for part in file.parts):
        return True
    return not keep_scheduler and bool(_SCHEDULER.match(file.name))


def _advise(plan: ResetPlan, keep_scheduler: bool) -> None:
    if plan.kind == "deepspeed":
        plan.meaning = [
            "Weights are those that the model_states files hold, in the type they were saved in; fp32 master copies "
            "lay in the shards that were left out and are made anew from them.",
            "The optimizer starts with empty moments: warm up again for some hundred steps.",
        ]
        plan.resume = [
            "engine.load_checkpoint(NEW_TEXT, load_optimizer_states=False, load_lr_scheduler_states=False)",
            "transformers: --model_name_or_path NEW; not --resume_from_checkpoint, which asks for the shards",
        ]
        return
    plan.meaning = ["The optimizer starts with empty moments: warm up again for some hundred steps."]
    if keep_scheduler:
        plan.meaning.append("transformers loads a scheduler only together with an optimizer: it starts anew there too.")
    else:
        plan.meaning.append("The learning-rate schedule starts anew as well; steps and data position go on.")
    plan.resume = ["--resume_from_checkpoint NEW, or trainer.train(resume_from_checkpoint=...) with it"]


# ----------
# A torch.save file without its optimizer: rewritten by torch in a process of its own.
#
# Only a file whose whole structure our own reader understood, with no pickle global outside the allow-list, is given to
# torch, and then to `torch.load(weights_only=True)`.

_SECONDS = 6 * 3600
_OPTIMIZERS = ("optimizer", "optimizers", "optim", "opt", "optimizer_states", "optimizer_state_dict", "optimizer_state",
               "optim_state_dict", "optimizer_state_dicts", "optimiser")  # fmt: skip
_SCHEDULERS = ("scheduler", "schedulers", "lr_scheduler", "lr_schedulers", "lr_scheduler_state_dict", "sched",
               "scheduler_state_dict", "lr_sched", "scheduler_state")  # fmt: skip
_EMPTIED = ("optimizer_states", "lr_schedulers")  # Lightning wants the keys, and takes empty lists

# Runs alone, isolated from the environment. Prints one JSON object.
_PROGRAM = """
import json, sys
import torch
source, target, dropped, emptied = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])

def same(a, b):
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        a, b = a.detach().contiguous().reshape(-1), b.detach().contiguous().reshape(-1)
        return not len(a) or bool(torch.equal(a.view(torch.uint8), b.view(torch.uint8)))
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b or a != a

def load(path):
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:
        return torch.load(path, map_location="cpu", weights_only=True)

state = load(source)
kept = type(state)((k, [] if k in emptied else v) for k, v in state.items() if k not in dropped or k in emptied)
torch.save(kept, target)
print(json.dumps({"same": same(kept, load(target)), "kept": [str(k) for k in kept]}))
"""


def keys_of(checkpoint: Path, keep_scheduler: bool) -> tuple[list[str], list[str]]:
    """Keys at the top of the file that are dropped, and those emptied.

    Raises:
        UsageError: the file is not safe to parse, or holds no optimizer state.
    """
    ws = Workspace([checkpoint])
    state = state_of(ws, ws.files[0])
    if not state.readable or state.problems:
        why = state.problems[0].text if state.problems else "its structure was not understood"
        raise UsageError(f"{checkpoint.name}: refused, as it may not be safe to load: {why}")
    if verdict(state.globals) != "safe-to-parse":
        raise UsageError(f"{checkpoint.name}: refused, its pickle names code: {', '.join(state.globals[:6])}")
    if not isinstance(state.tree, dict):
        raise UsageError(f"{checkpoint.name}: holds no dictionary, so no optimizer state of its own")
    wanted = _OPTIMIZERS if keep_scheduler else (*_OPTIMIZERS, *_SCHEDULERS)
    dropped = [k for k in state.tree if isinstance(k, str) and k in wanted]
    if not any(k in _OPTIMIZERS and state.tree[k] for k in dropped):
        keys = ", ".join(map(str, state.tree))[:160]
        raise UsageError(f"{checkpoint.name}: no optimizer state found", f"it holds {keys}")
    lightning = "pytorch-lightning_version" in state.tree
    return dropped, [k for k in dropped if lightning and k in _EMPTIED]


def rewrite(checkpoint: Path, target: Path, dropped: list[str], emptied: list[str]) -> None:
    """Write `target` without the dropped keys, and have every tensor compared with the original, byte for byte.

    Raises:
        UsageError: torch is missing, refuses the file, or what it wrote is not the same.
    """
    keys = [json.dumps(dropped), json.dumps(emptied)]
    argv = [sys.executable, "-I", "-c", _PROGRAM, str(checkpoint), str(target), *keys]
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH")}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise UsageError(f"{checkpoint.name}: torch did not finish within {_SECONDS // 3600} hours") from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:300]
        raise UsageError(f"{checkpoint.name}: torch could not rewrite it: {why}")
    if not json.loads(done.stdout.strip().splitlines()[-1])["same"]:
        raise UsageError(f"{checkpoint.name}: what was written differs from the original; nothing was kept")
    with target.open("rb") as made:
        os.fsync(made.fileno())


# ----------


@dataclass(frozen=True, slots=True)
class Reset:
    """What was done: names that were left out, bytes written, what it means, how to go on."""

    output: Path
    left_out: list[str]
    written: int
    meaning: list[str]
    resume: list[str]


def size_of(checkpoint: Path, plan: ResetPlan) -> int:
    """Bytes that will be written at most."""
    files = [checkpoint] if plan.kind == "single" else [checkpoint / f for f in plan.keep]
    return sum(f.stat().st_size for f in files)


def reset_optimizer(checkpoint: Path, output: Path, keep_scheduler: bool, progress: Progress) -> Reset:
    """Write `output` from `checkpoint` without optimizer (and scheduler) state.

    The checkpoint is only read. The output appears whole or not at all.

    Raises:
        UsageError: either end does not fit, the kind is not rewritten, no room, or the file is not safe to load.
    """
    try:
        return _reset(checkpoint, output, keep_scheduler, progress)
    except OSError as e:
        raise UsageError(f"{output} was not written: {e.strerror or e}") from None


def _reset(checkpoint: Path, output: Path, keep_scheduler: bool, progress: Progress) -> Reset:
    refuse_existing(checkpoint, output)
    plan = plan_reset(checkpoint, keep_scheduler)
    refuse_full(output, size_of(checkpoint, plan))
    if plan.kind == "single":
        return _single(checkpoint, output, keep_scheduler, progress)
    with beside(output) as folder:
        made = folder / "made"
        made.mkdir()
        made.chmod(checkpoint.stat().st_mode & 0o777)
        for file in plan.keep:
            copy_bytes(checkpoint / file, made / file, progress)
        written = sum((made / f).stat().st_size for f in plan.keep)
        publish(made, output)
    resume = [r.replace("NEW_TEXT", repr(str(output))).replace("NEW", quote(str(output))) for r in plan.resume]
    return Reset(output, [str(f) for f in plan.omit], written, plan.meaning, resume)


def _single(checkpoint: Path, output: Path, keep_scheduler: bool, progress: Progress) -> Reset:
    dropped, emptied = keys_of(checkpoint, keep_scheduler)
    with beside(output) as folder:
        made = folder / output.name
        rewrite(checkpoint, made, dropped, emptied)
        made.chmod(checkpoint.stat().st_mode & 0o777)
        written = made.stat().st_size
        progress(written)
        publish(made, output)
    meaning = ["The optimizer starts with empty moments: warm up again for some hundred steps."]
    if emptied:
        resume = [f"trainer.fit(model, ckpt_path={str(output)!r})"]
    else:
        resume = [f"load {quote(str(output))} as before, and leave out optimizer.load_state_dict, whose key is gone"]
    return Reset(output, [f"{k} (emptied)" if k in emptied else k for k in dropped], written, meaning, resume)
