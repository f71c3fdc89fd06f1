"""Which project a failure belongs to: told by the frames of its trace, where these make it clear."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..reading.failure import Failure

_INSTALLED = re.compile(r"(?:^|/)(?:site|dist)-packages/([A-Za-z_]\w*)")
# Package as it is imported -> repository that has its tracker.
TRACKERS = {
    "torch": "pytorch/pytorch", "torchtitan": "pytorch/torchtitan", "torchtune": "meta-pytorch/torchtune",
    "transformers": "huggingface/transformers", "accelerate": "huggingface/accelerate", "trl": "huggingface/trl",
    "peft": "huggingface/peft", "datasets": "huggingface/datasets", "diffusers": "huggingface/diffusers",
    "tokenizers": "huggingface/tokenizers", "safetensors": "huggingface/safetensors",
    "deepspeed": "deepspeedai/DeepSpeed", "megatron": "NVIDIA/Megatron-LM", "nemo": "NVIDIA/NeMo",
    "transformer_engine": "NVIDIA/TransformerEngine", "apex": "NVIDIA/apex",
    "lightning": "Lightning-AI/pytorch-lightning", "pytorch_lightning": "Lightning-AI/pytorch-lightning",
    "lightning_fabric": "Lightning-AI/pytorch-lightning", "verl": "volcengine/verl", "openrlhf": "OpenRLHF/OpenRLHF",
    "vllm": "vllm-project/vllm", "sglang": "sgl-project/sglang", "flash_attn": "Dao-AILab/flash-attention",
    "xformers": "facebookresearch/xformers", "bitsandbytes": "bitsandbytes-foundation/bitsandbytes",
    "axolotl": "axolotl-ai-cloud/axolotl", "llamafactory": "hiyouga/LLaMA-Factory", "ray": "ray-project/ray",
    "triton": "triton-lang/triton", "liger_kernel": "linkedin/Liger-Kernel", "unsloth": "unslothai/unsloth",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Addressee:
    """A project and the frame that points at it. `below` is the package that raised, where that is another."""

    package: str
    repository: str
    frame: str
    below: str = ""


def addressee(failure: Failure | None) -> Addressee | None:
    """The library nearest to where it broke; None where the user's own code raised, or nothing tells.

    An error that torch raises on behalf of another library is that library's to judge first: torch is named beside it.
    """
    frames = list(_placed(failure)) if failure else []
    if not frames or frames[-1][0] is None:
        return None
    innermost = str(frames[-1][0])
    for package, where in reversed(frames):
        if package is None:
            break  # the user's own code: what lies further out only called it
        if package in TRACKERS and package not in ("torch", "triton"):
            return Addressee(package, TRACKERS[package], where, "" if package == innermost else innermost)
    if innermost in TRACKERS:
        return Addressee(innermost, TRACKERS[innermost], frames[-1][1])
    return None


def _placed(failure: Failure) -> Iterator[tuple[str | None, str]]:
    """Package (None: not an installed one) and place of each frame, the outermost first; Python's own are passed."""
    for frame in failure.frames:
        where = f"{frame.path}:{frame.number} in {frame.function}"
        if m := _INSTALLED.search(frame.path):
            yield m[1], where[m.start(1) :] if m.start(1) else where
        elif not re.search(r"/lib(?:64)?/python3[\d.]*/|^<frozen|^<native>|\.so", frame.path):
            yield None, where
