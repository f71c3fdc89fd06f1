"""A new checkpoint without optimizer state, its weights bit for bit those of the old one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from ..errors import UsageError
from .copying import Progress, beside, copy_bytes, publish, refuse_existing, refuse_full
from .reset_plan import ResetPlan, plan_reset
from .single_file import keys_of, rewrite


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
