"""Frames of a stack that say where a program is: its own, not those of the library under it."""

from __future__ import annotations

import re

Frame = tuple[str, str, int]  # function, file, line

_LIBRARY = re.compile(
    r"(?:^|/)(?:torch|deepspeed|accelerate|lightning(?:_fabric)?|megatron/core/(?:distributed|utils))/"
    r"|c10d_logger\.py$|distributed_c10d\.py$|<frozen |/python3\.\d+/(?!site-packages)"
)
_TORCH = re.compile(r"(?:^|/)torch/|c10d_logger\.py$|<frozen ")


def own(frames: list[Frame]) -> list[Frame]:
    """Frames of the program, innermost first; failing that those above torch, failing that all."""
    mine = [f for f in frames if not _LIBRARY.search(f[1])]
    return mine or [f for f in frames if not _TORCH.search(f[1])] or frames


def shown(frames: list[Frame], most: int = 3) -> str:
    """`next_batch (data.py:12) < train (train.py:80)`; file names without their folders."""
    return " < ".join(f"{name} ({file.rpartition('/')[2]}:{line})" for name, file, line in own(frames)[:most])
