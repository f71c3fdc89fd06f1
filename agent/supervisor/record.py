"""What is known of an attempt, on disk at every moment: a supervisor that is killed leaves what it knew."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = "traindoctor.run/1"


class Record:
    """The record of one attempt, written whole each time; that it cannot be written never matters to the job."""

    def __init__(self, path: Path, argv: Sequence[str], attempt: int, rank: int | None) -> None:
        self.path = path
        self._since = time.monotonic()
        self.facts: dict[str, Any] = {
            "schema": SCHEMA, "command": list(argv), "cwd": working_folder(), "host": host_name(), "rank": rank,
            "attempt": attempt, "began": datetime.now(UTC).isoformat(timespec="milliseconds"), "ended": None,
            "seconds": 0.0, "state": "running", "pid": None, "supervisor": os.getpid(), "exit": None,
            "told_to_end": [], "set": {}, "left_as_it_was": [], "died": [], "hang": None, "notes": [],
        }  # fmt: skip

    def note(self, line: str) -> None:
        """Keep a line for whoever reads the record."""
        if line not in self.facts["notes"]:
            self.facts["notes"].append(line)

    def end(self, code: int, number: int) -> None:
        """The job ended: what a shell would see, and the signal it died of (0: none)."""
        import signal

        self.facts["ended"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.facts["state"] = "ended"
        name = signal.Signals(number).name if number in signal.valid_signals() and number < 32 else f"SIG{number}"
        self.facts["exit"] = {"code": code, "signal": name if number else None}

    def write(self, more: Mapping[str, Any] | None = None) -> bool:
        """Write it, with `more` taken in; whether the disk took it."""
        self.facts.update(more or {})
        self.facts["seconds"] = round(time.monotonic() - self._since, 3)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            text = json.dumps(self.facts, indent=1, ensure_ascii=True, default=str)
            beside.write_text(text + "\n", encoding="utf-8")
            beside.replace(self.path)
        except (OSError, ValueError, TypeError):
            _forget(beside)
            return False
        return True


def host_name() -> str:
    """The name of this host."""
    return os.uname().nodename


def working_folder() -> str:
    """The current folder; empty where it was removed under us."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _forget(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        return
