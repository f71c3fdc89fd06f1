"""What a run leaves: model.pt (weights alone) and last.ckpt (everything that is needed to go on)."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import torch


def _write(payload, path: Path):
    part = path.with_suffix(".part")
    torch.save(payload, part)
    os.replace(part, path)


def save(out: Path, model, optimizer, step: int, cfg):
    _write({"model": model.state_dict(), "step": step, "config": dataclasses.asdict(cfg)}, out / "model.pt")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "rng": torch.get_rng_state()}
    _write(state, out / "last.ckpt")


def resume(path: str, model, optimizer) -> int:
    """Take a run up where last.ckpt left it; the step."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return state["step"]


def init_from(path: str, model) -> int:
    """Begin with the weights of another run. A head of another size stays as it is."""
    state = torch.load(path, weights_only=True)
    own = model.state_dict()
    weights = {k: v for k, v in state["model"].items() if k not in own or v.shape == own[k].shape}
    model.load_state_dict(weights, strict=False)
    return state["step"]
