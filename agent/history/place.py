"""Where the history is kept: in the state folder, or in a folder that a team shares."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "DOCTOR_HISTORY"
NAME = "history.sqlite"
INCIDENTS = "incidents"


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a history. `shared`: somebody named it, so others may write there too."""

    folder: Path
    shared: bool = False

    @property
    def database(self) -> Path:
        return self.folder / NAME

    @property
    def incidents(self) -> Path:
        return self.folder / INCIDENTS


def place_of(state: Path) -> Place:
    """The place that `DOCTOR_HISTORY` (`history` in doctor.toml) names, else the state folder."""
    named = os.environ.get(VARIABLE)
    return Place(Path(named).expanduser(), shared=True) if named else Place(state)


def file_mode(place: Place) -> int:
    """Bits of a new file: for its owner alone, or for the group where the shared folder is writable for it."""
    if not place.shared:
        return 0o600
    group = place.folder.stat().st_mode & stat.S_IWGRP
    return 0o660 if group else 0o600


def new_folder(path: Path, place: Place) -> None:
    """A folder below the place, open to those whom its files are open to."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path != place.folder and file_mode(place) & 0o060:
        path.chmod(0o770)
