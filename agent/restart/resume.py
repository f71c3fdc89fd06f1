"""Which framework writes a run's checkpoints, and what makes it go on from one of them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from ..playbook import KNOWLEDGE
from ..reading.settings import read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

# What a run's settings may be of, from those that wrap others to those that are wrapped.
_OUTER = (
    "slime", "verl", "openrlhf", "nemo_rl", "torchtitan", "torchtune", "llamafactory", "axolotl", "swift", "unsloth",
    "llava", "sft", "trl", "automodel", "nemo", "diffusers", "lightning", "megatron", "hf", "accelerate", "deepspeed",
    "nanogpt", "llama_recipes", "vllm", "sglang",
)  # fmt: skip
# Which of them write checkpoints of a layout; the layout's own name stands for itself.
_WRITES = {
    "hf": ("llamafactory", "axolotl", "swift", "unsloth", "llava", "sft", "trl", "hf"),
    "peft": ("llamafactory", "axolotl", "swift", "unsloth", "sft", "trl", "torchtune", "hf"),
    "deepspeed": ("openrlhf", "llamafactory", "axolotl", "swift", "sft", "trl", "hf"),
    "megatron": ("slime", "nemo", "megatron"),
    "megatron_dist": ("slime", "nemo", "megatron"),
    "dcp": ("torchtitan", "automodel", "nemo", "slime", "megatron"),
    "lightning": ("nemo", "lightning"),
    "accelerate": ("diffusers",),
    "torch": ("torchtune", "nanogpt"),
}


@cache
def _templates() -> dict[str, list[str]]:
    table: dict[str, Any] = yaml.load(
        (KNOWLEDGE / "resume.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return {name: [str(line) for line in lines] for name, lines in table.items()}


def framework_of(ws: Workspace) -> str:
    """The outermost framework that the run's own settings speak to; empty where none is known."""
    return _first(_OUTER, {s.framework for s in read_settings(ws).sources if not s.file.good and s.framework})


def writer_of(ws: Workspace, layout: str) -> str:
    """The framework of a checkpoint: the one of the run's that writes this layout, else the layout's own name."""
    spoken = {s.framework for s in read_settings(ws).sources if not s.file.good}
    return _first(_WRITES.get(layout, ()), spoken) or layout


def commands(framework: str, path: Path, step: int | None) -> list[str]:
    """What to add to the launch command, the config or the script so that it goes on from a checkpoint.

    A line that needs a step is left out where the checkpoint names none; nothing is known of some frameworks.
    """
    found = []
    for template in _templates().get(framework, ()):
        if "{step}" in template and step is None:
            continue
        quoted = repr if _is_python(template) else shlex.quote
        names = {"path": path, "folder": path.parent, "name": path.name}
        found.append(template.format(step=step, **{name: quoted(str(value)) for name, value in names.items()}))
    return found


def _is_python(template: str) -> bool:
    return "(" in template


def _first(order: Iterable[str], known: set[str]) -> str:
    return next((name for name in order if name in known), "")
