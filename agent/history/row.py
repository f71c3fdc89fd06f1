"""A report as a row of the history: whose job it is, what failed, on which nodes, and what tells it from another."""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from ..predicates import Facts
from ..report import Report
from ..restart.resume import framework_of
from .diagnoses import Entry, now

if TYPE_CHECKING:
    from ..workspace import Workspace

_JOB_FILE = re.compile(r"(?:^|/)[\w.-]*?(\d{3,10})(?:_\d+)?\.(?:out|err)$")
_JOB_NAME = ("job_name", "run_name", "experiment_name", "exp_name", "wandb_exp_name")
_GPU = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|(?<=Serial Number)\s*:\s*(\d{8,16})\b")
# What differs between attempts of one job in the name of its folder: stamps, job ids, counts of attempts.
_STAMP = re.compile(
    r"[-_.]?(?<!\d)20\d\d[-_.]?[01]\d[-_.]?[0-3]\d(?:[-_.T ]?[0-2]\d[-_.:h]?[0-5]\d(?:[-_.:m]?[0-5]\d)?)?(?!\d)"
    r"|(?:^|[-_.])(?:attempt|restart|retry|requeue|resume|try)[-_.]?\d+|[-_.](?:job|slurm)?[-_.]?\d{5,10}(?!\d)",
    re.IGNORECASE,
)
_LONG = 300  # characters of a name or a template that are kept


def entry_of(report: Report, facts: Facts, ws: Workspace) -> Entry:
    """The row of a diagnosis."""
    from ..redact import Redactor

    first, restart = report.root_cause.first_failure, report.restart
    nodes = list(restart.exclude if restart else []) or ([first.host] if first.host else [])
    root = next(iter(ws.roots), Path())
    place = str(root) if str(root) == "-" else str(root.absolute())
    told = Redactor().redact
    job, job_id = job_of(ws)
    return Entry(
        session=report.session, time=now(), user=user_here(), host=socket.gethostname(), job=told(job), job_id=job_id,
        folder=told(stable(place)), root=told(place), cause=report.root_cause.id or "", status=report.status,
        confidence=report.root_cause.confidence, framework=framework_of(ws), error=told(error_of(facts)), nodes=nodes,
        gpus=_gpus(report), step=first.step, attempt=first.attempt, failure=_failure(report, facts, ws, place, job_id),
    )  # fmt: skip


def job_of(ws: Workspace) -> tuple[str, str]:
    """Name and scheduler id of the job, as the run's own files tell; of this machine's job where we run inside it."""
    from ..reading.settings import read_settings

    ids = [m[1] for f in ws.files if not f.good and f.role == "log" and (m := _JOB_FILE.search(f.name))]
    named = [s for s in read_settings(ws).all if s.name.rpartition(".")[2] in _JOB_NAME and not s.file.good]
    names = [str(s.value) for part in _JOB_NAME for s in named if s.name.endswith(part)]
    if ws.live and (inside := os.environ.get("SLURM_JOB_ID")):
        ids.append(inside)
        names.insert(0, os.environ.get("SLURM_JOB_NAME", ""))
    return next(filter(None, names), "")[:_LONG], max((i for i in ids if i.isdigit()), key=int, default="")


def stable(root: str) -> str:
    """A folder without what differs between attempts of the same job: `runs/exp_2026-01-02_10-00` is `runs/exp`.

    A folder that is named by a time alone keeps it: any job may lie in the next one.
    """
    parts = [_STAMP.sub("", part) or ("*" if part[0].isalpha() else part) for part in root.split("/") if part]
    return ("/" if root.startswith("/") else "") + "/".join(parts)


def error_of(facts: Facts) -> str:
    """The first error without its numbers, names and times; empty where the run raised none."""
    from ..reading.templates import template_of

    found = [e for e in facts.get("error.first") if e.kind != "absent"]
    return template_of(str(found[0].value).encode())[:_LONG] if found else ""


def error_in(report: Report) -> str:
    """The same of a report that is all there is: from what it cites."""
    from ..reading.templates import template_of

    found = next((e for e in report.evidence if e.key == "error.first" and e.kind != "absent"), None)
    return template_of(str(found.value).encode())[:_LONG] if found else ""


def _gpus(report: Report) -> list[str]:
    cited = {link.evidence for link in report.chain if link.role == "cause"}
    texts = [e.text for e in report.evidence if e.id in cited]
    return sorted({m[1] or m[0] for text in texts for m in _GPU.finditer(text)})


def _failure(report: Report, facts: Facts, ws: Workspace, place: str, job_id: str) -> str:
    """The same for the same failure diagnosed again, another for the next failure of the same job.

    Where the log stamps no time, it is told by when the file was last written: a job that is started again writes it.
    """
    by_id = {e.id: e for e in report.evidence}
    first = report.root_cause.first_failure
    lead = next((by_id[link.evidence] for link in report.chain if link.evidence in by_id), None)
    where = (lead.file, lead.offset, lead.text) if lead else ()
    when = first.time or (_written(ws, lead.file) if lead and not _runs(facts) else None)
    again = [str(e.value) for e in facts.get("run.restarted")]
    told = (place, job_id, report.root_cause.id, when, first.step, first.attempt, *again, *where)
    return hashlib.sha256(repr(told).encode(errors="replace")).hexdigest()[:16]


def _runs(facts: Facts) -> bool:
    return any(e.value == "running" for e in facts.get("run.state"))


def _written(ws: Workspace, name: str | None) -> int | None:
    """When a file of the run was last written, in seconds."""
    path = next((f.path for f in ws.files if f.name == name), None)
    try:
        return int(path.stat().st_mtime) if path else None
    except OSError:
        return None


def user_here() -> str:
    """Who runs this."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without an entry for this user
        return str(os.getuid())
