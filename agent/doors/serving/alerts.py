"""What Alertmanager sends (webhook, version 4), read strictly where we use it and forgiving about all the rest."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from ...core.errors import UsageError
from ...safety.fences import one_line

MOST = 1_000  # alerts in a message
_WORD = 4_096  # characters of a label or annotation that is looked at
_JOB = re.compile(r"\d{1,10}(?:_\d{1,7})?")
FIELDS = ("run_dir", "slurm_job_id")


class Malformed(ValueError):
    """The message is not one of Alertmanager's; says where."""


class Elsewhere(ValueError):
    """The alert names nothing that may be looked at; says why."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert. `key` stays the same while it is sent again, and is another when it fires anew."""

    key: str
    firing: bool
    name: str
    said: Mapping[str, str]  # labels, and annotations where no label has the name


def alerts_of(body: bytes) -> list[Alert]:
    """The alerts of a message.

    Raises:
        Malformed: it is none.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("not JSON") from None
    if not isinstance(data, dict) or data.get("version") != "4":
        raise Malformed('no message of version "4"')
    alerts = data.get("alerts")
    if not isinstance(alerts, list) or len(alerts) > MOST:
        raise Malformed(f"alerts: not a list of at most {MOST}")
    return [_alert(f"alerts[{n}]", each) for n, each in enumerate(alerts)]


def _alert(where: str, data: Any) -> Alert:
    if not isinstance(data, dict):
        raise Malformed(f"{where}: not an object")
    if data.get("status") not in ("firing", "resolved"):
        raise Malformed(f"{where}.status: neither firing nor resolved")
    labels, notes = (
        _words(f"{where}.labels", data.get("labels")),
        _words(f"{where}.annotations", data.get("annotations", {})),
    )
    started, finger = data.get("startsAt"), data.get("fingerprint", "")
    if not isinstance(started, str) or not started or not isinstance(finger, str):
        raise Malformed(f"{where}: startsAt and fingerprint are not texts")
    # Old releases send no fingerprint: the labels are what it is made of.
    same = f"{finger or json.dumps(sorted(labels.items()))}\0{started}"
    key = hashlib.sha256(same.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return Alert(key, data["status"] == "firing", labels.get("alertname", "an alert"), {**notes, **labels})


def _words(where: str, data: Any) -> dict[str, str]:
    """Texts by name; long ones, as descriptions are, are none of ours."""
    if not isinstance(data, dict) or not all(isinstance(v, str) for v in data.values()):
        raise Malformed(f"{where}: not texts by name")
    return {k: v for k, v in data.items() if len(v) <= _WORD}


@dataclass(frozen=True, slots=True)
class Places:
    """Which runs alerts may name: folders below `roots`, and jobs of Slurm where `slurm` says so.

    `names` says under which label or annotation each of `FIELDS` is found.
    """

    roots: Sequence[Path]
    slurm: bool = False
    names: Mapping[str, str] | None = None

    def of(self, alert: Alert) -> list[str]:
        """What `doctor triage` is told to look at: a folder, or `--slurm` and a job.

        Raises:
            Elsewhere: the alert names no run, or one that may not be looked at.
        """
        names = {name: name for name in FIELDS} | dict(self.names or {})
        if (folder := alert.said.get(names["run_dir"])) is not None:
            return [str(self._inside(folder))]
        if (job := alert.said.get(names["slurm_job_id"])) is None:
            raise Elsewhere(f"it has neither {names['run_dir']} nor {names['slurm_job_id']}")
        if not self.slurm:
            raise Elsewhere("jobs of Slurm are looked at with --slurm alone")
        if not _JOB.fullmatch(job):
            raise Elsewhere("its job of Slurm is no number")
        return ["--slurm", job]

    def still(self, run: Sequence[str]) -> bool:
        """Whether what `of` said some time ago may be looked at now: folders are replaced, roots are others."""
        try:
            return self.slurm if run[0] == "--slurm" else str(self._inside(run[0])) == run[0]
        except (Elsewhere, IndexError):
            return False

    def _inside(self, named: str) -> Path:
        """The folder itself, with links followed: only where it then lies below a root."""
        if not named.startswith("/") or "\0" in named:
            raise Elsewhere("its folder is no absolute path")
        try:
            path = Path(named).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # a value error: what no file can be called
            raise Elsewhere("its folder is not there") from None
        if not any(path.is_relative_to(root) for root in self.roots):
            raise Elsewhere("its folder is below no --root")
        if not path.is_dir():
            raise Elsewhere("what it names is no folder")
        return path


# ----------
# Which alerts were heard, on disk: one that is sent again every few minutes, or after a restart, is triaged once.

State = Literal["waiting", "done", "failed", "refused"]
HEARD_MOST = 5_000
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
        if len(self._known) > HEARD_MOST:  # those that still wait are the last to go
            going = sorted(self._known, key=lambda key: self._known[key]["state"] == "waiting")
            for key in going[: len(self._known) - HEARD_MOST]:
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
