"""Damage to real checkpoints, as crashes, full disks and bad updates do it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from traindoctor.agent.reading.checkpoints.checks.checks import states_of_checkpoint
from traindoctor.agent.reading.checkpoints.layouts import checkpoints
from traindoctor.agent.reading.run.workspace import Workspace

# The newest save of each kind, a file of weights in it, and one of its tensors.
NEWEST = {
    "hf": "checkpoint-4", "hf_gpt2": "checkpoint-4", "hf_sharded": "checkpoint-4", "peft": "checkpoint-4",
    "zero1": "global_step2", "zero2": "global_step2", "zero3": "global_step2", "dcp": "step-4",
    "lightning": "checkpoints/epoch=0-step=4.ckpt", "torch": "step_4.pt", "megatron": "iter_0000004",
    "megatron_dist": "iter_0000004",
}  # fmt: skip
WEIGHTS = {
    "hf": "model.safetensors", "hf_gpt2": "model.safetensors", "hf_sharded": "model-00001-of-00002.safetensors",
    "peft": "adapter_model.safetensors", "zero1": "mp_rank_00_model_states.pt", "zero2": "mp_rank_00_model_states.pt",
    "zero3": "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "dcp": "__0_0.distcp", "lightning": "", "torch": "",
    "megatron": "mp_rank_01/model_optim_rng.pt", "megatron_dist": "__0_0.distcp",
}  # fmt: skip


def weights(run: Path, kind: str) -> Path:
    """The file of weights that is damaged."""
    return run / NEWEST[kind] / WEIGHTS[kind] if WEIGHTS[kind] else run / NEWEST[kind]


def cut(path: Path, share: float = 0.6) -> None:
    """Keep the first part of a file, as a killed writer leaves it."""
    os.truncate(path, int(path.stat().st_size * share))


def change(path: Path, edit: Callable[[Any], Any]) -> None:
    """Load a file of `torch.save`, change it, save it."""
    state = torch.load(path, map_location="cpu", weights_only=False)
    edited = edit(state)
    torch.save(state if edited is None else edited, path)


def overwrite(run: Path, kind: str, wanted: str, fill: float) -> str:
    """Fill the first weight whose name holds `wanted`; checksums of its file are made anew, except within DCP."""
    path = weights(run, kind)
    if path.suffix == ".safetensors":
        held = load_file(path)
        name = next(n for n in held if wanted in n)
        held[name].fill_(fill)
        save_file(held, path, {"format": "pt"})
        return name
    if path.suffix == ".distcp":
        return _in_place(run, kind, wanted, fill)
    found: list[str] = []

    def edit(state: Any, name: str = "") -> None:
        items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list) else ()
        for key, value in items:
            inside = f"{name}.{key}" if name else str(key)
            if isinstance(value, torch.Tensor):
                if not found and wanted in inside and value.is_floating_point() and value.numel() > 1:
                    value.data.fill_(fill)
                    found.append(inside)
            else:
                edit(value, inside)

    change(path, edit)
    return found[0]


def _in_place(run: Path, kind: str, wanted: str, fill: float) -> str:
    ws = Workspace([run])
    checkpoint = next(c for c in checkpoints(ws) if c.name == NEWEST[kind])
    for _, state in states_of_checkpoint(ws, checkpoint):
        for tensor in state.tensors.values():
            if wanted in tensor.name and tensor.file.path.suffix == ".distcp":
                with tensor.file.path.open("r+b") as f:
                    f.seek(tensor.start)
                    f.write(torch.full((tensor.count,), fill).numpy().tobytes())
                return tensor.name
    raise AssertionError(f"no tensor is called {wanted}")


class Call:
    """Pickled, it calls `os.system` when somebody loads it."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple:
        return os.system, (self.command,)


def poison(path: Path, canary: Path) -> None:
    """Add an object to a file of `torch.save` that would write the canary when it is loaded."""
    state = torch.load(path, map_location="cpu", weights_only=False)
    state["notes"] = Call(f"touch {canary}")
    torch.save(state, path, pickle_module=pickle)
