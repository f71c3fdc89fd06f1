"""How much memory the device has: from an out-of-memory message, a capture of nvidia-smi, or the card's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..playbook import quantity
from . import oom
from .anchor_lines import anchored
from .files import Line, RunFile
from .model_config import tables
from .versions import read_environment

if TYPE_CHECKING:
    from ..workspace import Workspace

TOTAL = re.compile(r"/\s*(\d{4,7})MiB\b")
SAID = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(?:GiB|GB|G)?\s*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes of one device, and where it was read: `how` in words, a line where there is one."""

    bytes: float
    how: str
    file: RunFile | None = None
    line: Line | None = None


def of_name(name: str) -> float | None:
    """Bytes that a card of this name offers; None for an unknown one."""
    for pattern, size in tables()["accelerators"]:
        if re.search(pattern, name, re.IGNORECASE):
            return float(quantity(size))
    return None


def said(text: str) -> Capacity | None:
    """What a user names: `80`, `80GiB` or a card such as `H100`; None where it is neither."""
    if m := SAID.match(text):
        return Capacity(float(m[1]) * (1 << 30), f"{float(m[1]):g} GiB as given")
    size = of_name(text)
    return Capacity(size, f"a {text}") if size else None


def recorded(ws: Workspace) -> Capacity | None:
    """The capacity that the run's files tell; the smallest where devices differ."""
    found = anchored(ws)
    told = []
    for hit in found.of("oom"):
        what = oom.parse(hit.text)
        if what and "capacity" in what.bytes and not hit.file.good:
            told.append(Capacity(what.bytes["capacity"], "the out-of-memory message", hit.file, hit.line))
    for hit in found.of("gpu") if not told else ():
        if (m := TOTAL.search(hit.text)) and not hit.file.good:
            told.append(Capacity(int(m[1]) * (1 << 20), "nvidia-smi", hit.file, hit.line))
    if told:
        return min(told, key=lambda c: c.bytes)
    for fact in read_environment(ws).facts:
        if fact.key == "gpu" and not fact.file.good and (size := of_name(str(fact.value))):
            told.append(Capacity(size, f"a {fact.value}", fact.file, fact.line))
    return min(told, key=lambda c: c.bytes) if told else None
