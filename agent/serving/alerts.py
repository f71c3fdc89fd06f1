"""What Alertmanager sends (webhook, version 4), read strictly where we use it and forgiving about all the rest."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
