"""Which alerts were heard, on disk: one that is sent again every few minutes, or after a restart, is triaged once."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from ..errors import UsageError
from ..sanitize import one_line

State = Literal["waiting", "done", "failed", "refused"]
MOST = 5_000
KEPT = 30 * 24 * 3600.0
_LARGEST = 8 << 20


class Heard:
    """The alerts of one server by their key. While it is there, no other server works on the same file."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            UsageError: another server is at work, or the folder cannot be written.
        """
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(folder / "serve.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as e:
            raise UsageError(f"{one_line(str(folder))}: {e.strerror}", "DOCTOR_STATE names another folder") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(
                "another `doctor serve` of this user is at work", "stop it, or give this one a DOCTOR_STATE of its own"
            ) from None
        self._path = folder / "alerts.data"
        for half in folder.glob(".alerts.*"):  # of a server that was killed while it wrote
            half.unlink(missing_ok=True)
        self._known, self._changed = _sound(self._path), False

    def knows(self, key: str) -> bool:
        """Whether an alert was heard before."""
        return key in self._known

    def waiting(self) -> list[tuple[str, list[str]]]:
        """Alerts whose triage did not end, with what they name: an earlier server was stopped before."""
        return [(k, a["run"]) for k, a in self._known.items() if a["state"] == "waiting" and a["run"]]

    def keep(self, key: str, state: State, run: list[str] | None = None) -> None:
        """Note what became of an alert; `save` writes it down."""
        known = self._known.get(key, {"run": []})
        self._known[key] = {"state": state, "run": run if run is not None else known["run"], "at": time.time()}
        self._changed = True

    def forget(self, key: str) -> bool:
        """An alert is over. Says whether it was known; what still waits goes on waiting."""
        if key not in self._known:
            return False
        if self._known[key]["state"] != "waiting":
            del self._known[key]
            self._changed = True
        return True

    def close(self) -> None:
        """Let another server work."""
        os.close(self._lock)

    def save(self) -> None:
        """Write down what changed: whole or not at all; on a full disk what is known is kept in memory."""
        if not self._changed:
            return
        if len(self._known) > MOST:  # those that still wait are the last to go
            going = sorted(self._known, key=lambda key: self._known[key]["state"] == "waiting")
            for key in going[: len(self._known) - MOST]:
                del self._known[key]
        beside = self._path.with_name(f".alerts.{token_hex(6)}")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
                json.dump(self._known, f)
            beside.replace(self._path)
            self._changed = False
        except OSError:
            with suppress(OSError):
                beside.unlink(missing_ok=True)


def _sound(path: Path) -> dict[str, dict[str, Any]]:
    """What an earlier server wrote, without what is damaged or a month old."""
    try:
        data = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= _LARGEST else None
    except (OSError, ValueError, RecursionError):
        return {}
    now = time.time()
    return {
        key: a for key, a in (data.items() if isinstance(data, dict) else ())
        if isinstance(a, dict) and isinstance(a.get("at"), int | float) and now - a["at"] < KEPT
        and isinstance(a.get("state"), str) and isinstance(a.get("run"), list)
        and all(isinstance(word, str) for word in a["run"])
    }  # fmt: skip
