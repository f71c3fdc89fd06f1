"""The optimizer and the rate at each step."""

from __future__ import annotations

import math

import torch

from .config import OptimConfig


def build(model, c: OptimConfig):
    """AdamW; vectors (norms, biases) are not decayed."""
    wide = [p for p in model.parameters() if p.dim() >= 2]
    flat = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": wide, "weight_decay": c.weight_decay}, {"params": flat, "weight_decay": 0.0}]
    if c.name == "sgd":
        return torch.optim.SGD(groups, lr=c.lr, momentum=0.9)
    return torch.optim.AdamW(groups, lr=c.lr, betas=tuple(c.betas))


def rate(c: OptimConfig, step: int, steps: int) -> float:
    """Linear warmup, then a cosine to `min_lr_ratio` of the peak."""
    if step < c.warmup:
        return c.lr * (step + 1) / c.warmup
    done = (step - c.warmup) / max(1, steps - c.warmup)
    low = c.lr * c.min_lr_ratio
    return low + 0.5 * (c.lr - low) * (1 + math.cos(math.pi * min(1.0, done)))
