"""What the links of a machine should carry: a table of data, and the entry that fits what the machine says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

import yaml

from ..playbook import KNOWLEDGE

_NVLINK = re.compile(r"\bNV\d+\b")
_XGMI = re.compile(r"\bXGMI\b")


@dataclass(frozen=True, slots=True)
class Link:
    """A kind of link. `low` and `high`: GB/s of bus bandwidth that an all-reduce of large messages should reach."""

    name: str
    low: float
    high: float
    what: str
    gpus: tuple[str, ...] = ()


@cache
def links() -> dict[str, Link]:
    """Every known link by name."""
    text = (KNOWLEDGE / "links.yaml").read_text(encoding="utf-8")
    data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {
        e["name"]: Link(
            e["name"], e["rate"] * e["share"][0], e["rate"] * e["share"][1], e["what"], tuple(e.get("gpus", ()))
        )
        for e in data["links"]
    }


def link_between(topology: str, devices: str) -> Link | None:
    """The link between this machine's GPUs.

    Args:
        topology: what `nvidia-smi topo -m` prints.
        devices: what `nvidia-smi --query-gpu=name,pcie.link.gen.max --format=csv,noheader` prints.
    """
    matrix = [line for line in topology.splitlines() if line.startswith("GPU")]
    first = devices.splitlines()[0] if devices.strip() else ""
    if matrix and (_NVLINK.search(matrix[0]) or _XGMI.search(matrix[0])):
        fitting = [k for k in links().values() if any(re.search(rf"\b{g}\b", first) for g in k.gpus)]
        return fitting[0] if fitting else None
    generation = re.search(r",\s*(\d)\s*$", first)
    return links().get(f"pcie{generation[1]}") if generation else None
