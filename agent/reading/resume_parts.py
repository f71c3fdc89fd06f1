"""What a resume is put together from: weights of one run and optimizer state of another do not go together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

_WEIGHTS = re.compile(
    r"(?i)(?:^|[._])(?:weights?|model|net(?:work)?|params?|state_dict|ckpt|checkpoint)(?:$|[._](?:path|file|ckpt|checkpoint|state|from)$)"
)
_OPTIMIZER = re.compile(
    r"(?i)(?:^|[._])(?:load_|resume_|init_)?optim(?:i[sz]ers?)?(?:$|[._](?:path|file|ckpt|checkpoint|states?|from)$)"
)
_RESUMES = re.compile(r"(?i)resum|restor|continu|restart|load|init_?from|warm_?start|from_?checkpoint")
_FILE = re.compile(r"(?i)^(?=.*[/\\]).*\.(?:pt|pth|bin|ckpt|tar|pkl|safetensors|npz|msgpack)$")
_STEP = re.compile(r"(?<![\dA-Za-z])(\d{2,9})(?![\dA-Za-z])")


@dataclass(frozen=True, slots=True)
class Mixed:
    """Weights and an optimizer state that a resume takes from two places."""

    weights: Setting
    optimizer: Setting

    @property
    def says(self) -> str:
        """Both files in one line."""
        return f"weights from {self.weights.value}, optimizer state from {self.optimizer.value}"


def mixed_parts(ws: Workspace) -> Iterator[Mixed]:
    """Resumes whose two files lie in folders of two runs, or are those of two steps."""
    by_file: dict[str, list[Setting]] = {}
    for s in read_settings(ws).all:
        if isinstance(s.value, str) and not s.file.good and not s.default and _FILE.match(s.value):
            by_file.setdefault(s.file.name, []).append(s)
    for settings in by_file.values():
        optimizers = [s for s in settings if _OPTIMIZER.search(s.key)]
        weights = [s for s in settings if _WEIGHTS.search(s.key) and not _OPTIMIZER.search(s.key)]
        if len(optimizers) == 1 and len(weights) == 1 and _RESUMES.search(f"{optimizers[0].key} {weights[0].key}"):
            found = Mixed(weights[0], optimizers[0])
            if _apart(str(found.weights.value), str(found.optimizer.value)):
                yield found


def _apart(weights: str, optimizer: str) -> bool:
    """Whether two paths name two runs or two steps; `model/` and `optimizer/` of one checkpoint are one place."""
    a, b = (PurePosixPath(p.replace("\\", "/")) for p in (weights, optimizer))
    steps = [{int(n) for n in _STEP.findall(p.name)} or {int(n) for n in _STEP.findall(p.parent.name)} for p in (a, b)]
    if all(steps) and not steps[0] & steps[1]:
        return True
    return a.parent != b.parent and a.parent.parent == b.parent.parent and not _part(a.parent.name, b.parent.name)


def _part(a: str, b: str) -> bool:
    return any(re.search(r"(?i)optim|model|weight|net|state|ckpt|checkpoint", name) for name in (a, b))
