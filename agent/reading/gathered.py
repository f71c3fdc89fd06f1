"""A folder that `doctor collect` brought together from many nodes: which of its folders is which node."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMA = "traindoctor.nodes/1"
MANIFEST = "manifest.json"
_LIMIT = 4 << 20


def hosts_of(root: Path) -> dict[str, str]:
    """Names of nodes by the folder, right below the root, that holds what they handed over. Usually none."""
    try:
        with (root / MANIFEST).open("rb") as stream:
            head = stream.read(_LIMIT)
        said = json.loads(head) if SCHEMA.encode() in head[:200] else {}
        return {str(n["folder"]): str(n["node"]) for n in said.get("nodes", []) if n.get("folder")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
