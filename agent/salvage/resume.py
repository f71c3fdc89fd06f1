"""How each framework goes on from a checkpoint, in commands with the real paths, each word quoted where it stands."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..playbook import KNOWLEDGE
from .quoting import word

TABLE = KNOWLEDGE / "resume.yaml"
_CALL = re.compile(r"\w\(")  # a line of Python, where a path is a string


def resume_commands(framework: str, path: Path, step: int | None) -> list[str]:
    """Commands or lines of code that go on from a checkpoint; none where the framework is not known.

    Args:
        path: the checkpoint; its folder is what frameworks that keep a tracker are pointed at.
    """
    found = []
    for template in _templates().get(framework, []):
        if template.startswith("doctor ") or (step is None and "{step}" in template):
            continue
        spelled = (lambda p: repr(str(p))) if _CALL.search(template) else word
        found.append(
            template.format(path=spelled(path), folder=spelled(path.parent), name=spelled(Path(path.name)), step=step)
        )
    return found


@cache
def _templates() -> dict[str, list[str]]:
    table: Any = (
        yaml.load(TABLE.read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        if TABLE.is_file()
        else {}
    )
    return {name: [str(row) for row in rows] for name, rows in table.items() if isinstance(rows, list)}
