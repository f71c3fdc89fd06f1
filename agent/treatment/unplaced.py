"""A setting that no file of the run takes: how its framework writes it, for whoever puts it in by hand."""

from __future__ import annotations

import re
from typing import Any

from ..patching.document import Document
from ..patching.snippets import snippet
from ..patching.spelling import lineage
from ..reading.settings_leaf import Sheet
from ..reading.settings_map import settings_map
from ..report import ByHand
from .ground import Ground

USUAL = {
    "hf": "Hugging Face", "megatron": "Megatron", "deepspeed": "DeepSpeed", "lightning": "Lightning",
    "accelerate": "accelerate", "verl": "verl", "torchtitan": "torchtitan", "vllm": "vLLM", "pytorch": "PyTorch",
    "launcher": "torchrun", "env": "environment",
}  # fmt: skip
NAMES = USUAL | {
    "trl": "TRL", "sft": "TRL", "nemo": "NeMo", "nemo_rl": "NeMo-RL", "openrlhf": "OpenRLHF", "sglang": "SGLang",
    "llamafactory": "LLaMA-Factory", "swift": "ms-swift", "peft": "PEFT", "llava": "LLaVA", "slurm": "Slurm",
}  # fmt: skip
# What one line cannot say: the key depends on the script, or takes an object and not a word.
WORDLESS = {
    "hf": ("sequence_length", "offload_optimizer"),
    "trl": ("offload_optimizer",),
    "lightning": ("activation_checkpointing", "offload_optimizer", "offload_parameters"),
    "accelerate": ("attention_implementation", "compile", "nccl_timeout"),
    "axolotl": ("debug",),
    "llamafactory": ("dataset_text_field",),
    "verl": ("precision", "sequence_length", "checkpoint_format", "checkpoint_strictness", "global_batch_size"),
    "vllm": ("attention_implementation",),
    "sglang": ("attention_implementation",),
}
_KEYWORD = re.compile(r"(\w+)=(.+)")
SHOWN = 2  # frameworks whose words are given where the run's own is not known


def by_name(on: Ground, name: str, value: Any) -> ByHand:
    """What to put in: in the words of the run's frameworks, else in those that most people use."""
    told = _of_the_run(on)
    texts = {f: text for f in told if (text := _spelled(f, name, value))}
    if texts:
        framework, text = next(iter(texts.items()))
        return ByHand(text=text, where=f"the {NAMES.get(framework, framework)} settings", why=_nowhere(on))
    usual = [
        text if f == "env" else f"{label}: {text}" for f, label in USUAL.items() if (text := _spelled(f, name, value))
    ]
    return ByHand(text="; ".join(usual[:SHOWN]) or f"{name} = {value}", why=_nowhere(on))


def _of_the_run(on: Ground) -> list[str]:
    """Frameworks that the run's files show, those of files that may be changed first."""
    found = [*(s.framework for s in on.sources), *(s.framework for s in on.reading.sources if not s.file.good)]
    return [f for f in dict.fromkeys(found) if f]


def _spelled(framework: str, name: str, value: Any) -> str:
    """One line in the framework's words; empty where it has none."""
    if name in WORDLESS.get(framework, ()):
        return ""
    if name == "precision" and value in ("fp16", "bf16"):  # most have a switch for each
        return _line(framework, value, True) or _line(framework, name, value)
    return _line(framework, name, value)


def _line(framework: str, name: str, value: Any) -> str:
    spelled = settings_map().canonical[name].spelled
    if not settings_map().owns(framework, spelled):
        return ""
    if framework == "pytorch" and name == "nccl_timeout":
        return f"timeout=timedelta(seconds={value:g})"
    text = snippet(Document("", "launch.sh", "shell", framework, Sheet()), name, value)
    if (keyword := _KEYWORD.fullmatch(text)) and (above := _above(framework, name, keyword[1])):
        text = keyword[2]
        for part in reversed((*above[1:], keyword[1])):
            text = f'{{"{part}": {text}}}'
        text = f"{above[0]}={text}"
    return " ".join(text.split()) if "\n" not in text else text


def _above(framework: str, name: str, key: str) -> tuple[str, ...]:
    """The keywords above a key whose value a call takes inside a mapping."""
    spelled = settings_map().canonical[name].spelled
    found = [s.segments for f in lineage(framework) for s in spelled.get(f, ()) if s.segments[-1] == key]
    return next((s[:-1] for s in found if s[0].endswith(("_kwargs", "_config"))), ())


def _nowhere(on: Ground) -> str:
    if on.passed:
        return f"the run keeps only records of its settings ({', '.join(on.passed[:3])})"
    return "no file of the run holds it or could"
