"""What of a checkpoint is optimizer state, and what can be written without it."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError

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
