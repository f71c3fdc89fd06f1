"""Whether a step fits: what is needed on top of its tensors, and how near that comes to the device."""

from __future__ import annotations

from ..playbook import quantity
from .memory_model import Estimate
from .model_config import tables

MARGIN = 0.15  # share of the device within which the answer is "tight"


def overhead(estimate: Estimate) -> float:
    """Bytes of context, communicators and the allocator's rounding."""
    row = tables()["overhead"]
    fixed = float(quantity(row["context"]))
    if estimate.plan.world > 1:
        fixed += float(quantity(row["communicators"]))
    return fixed + row["rounding"] * estimate.peak.total


def needed(estimate: Estimate) -> float:
    """Bytes of a device that the step takes in all."""
    return estimate.peak.total + overhead(estimate)


def fits(estimate: Estimate, capacity: float) -> str:
    """`yes`, `tight` or `no`.

    Args:
        capacity: bytes of the device.
    """
    ratio = needed(estimate) / max(1.0, capacity)
    return "no" if ratio > 1 + MARGIN else "tight" if ratio > 1 - MARGIN / 2 else "yes"
