"""Where doctor keeps its own things: a cache that may vanish and a state folder that may not."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Rebuildable things: compiled patterns and playbooks, the index. `DOCTOR_CACHE` overrides."""
    if named := os.environ.get("DOCTOR_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "traindoctor"


def state_folder() -> Path:
    """Sessions, reports and the user's documents. `DOCTOR_STATE` overrides."""
    if named := os.environ.get("DOCTOR_STATE"):
        return Path(named)
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "traindoctor"
