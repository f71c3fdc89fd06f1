"""A setting that no file of the run takes: how its framework writes it, for whoever puts it in by hand."""

from __future__ import annotations

from typing import Any

from ..patching.document import Document
from ..patching.snippets import snippet
from ..reading.settings_leaf import Sheet
from ..reading.settings_map import settings_map
from ..report import ByHand
from .ground import Ground

USUAL = {
    "hf": "Hugging Face", "megatron": "Megatron", "deepspeed": "DeepSpeed", "lightning": "Lightning",
    "accelerate": "accelerate", "verl": "verl", "torchtitan": "torchtitan", "vllm": "vLLM", "pytorch": "PyTorch",
    "launcher": "torchrun", "env": "environment",
}  # fmt: skip
SHOWN = 2  # frameworks whose words are given where the run's own is not known


def by_name(on: Ground, name: str, value: Any) -> ByHand:
    """What to put in: in the words of the run's frameworks, else in those that most people use."""
    told = _of_the_run(on)
    texts = {f: text for f in told if (text := _spelled(f, name, value))}
    if texts:
        framework, text = next(iter(texts.items()))
        return ByHand(text=text, where=f"the {USUAL.get(framework, framework)} settings", why=_nowhere(on))
    usual = [f"{label}: {text}" for f, label in USUAL.items() if (text := _spelled(f, name, value))][:SHOWN]
    return ByHand(text="; ".join(usual) or f"{name} = {value}", why=_nowhere(on))


def _of_the_run(on: Ground) -> list[str]:
    """Frameworks that the run's files show, those of files that may be changed first."""
    found = [*(s.framework for s in on.sources), *(s.framework for s in on.reading.sources if not s.file.good)]
    return [f for f in dict.fromkeys(found) if f]


def _spelled(framework: str, name: str, value: Any) -> str:
    """One line in the framework's words; empty where it has none."""
    if not settings_map().owns(framework, settings_map().canonical[name].spelled):
        return ""
    text = snippet(Document("", "launch.sh", "shell", framework, Sheet()), name, value)
    return " ".join(text.split()) if "\n" not in text else text


def _nowhere(on: Ground) -> str:
    if on.passed:
        return f"the run keeps only records of its settings ({', '.join(on.passed[:3])})"
    return "no file of the run holds it or could"
