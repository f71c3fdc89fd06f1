"""One row for each diagnosed session, and earlier rows of the same job or node."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import socket
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.report import Before, CitedEvidence, Report
from ...repair.restart import framework_of
from ...verdict.predicates import Facts
from .history_database import Place, file_mode, new_folder

if TYPE_CHECKING:
    from ...reading.run.workspace import Workspace

BEFORE = 5
_COLUMNS = (
    "session", "time", "user", "host", "job", "job_id", "folder", "root", "cause", "status", "confidence", "framework",
    "error", "gpus", "step", "attempt", "failure",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """A diagnosis as the history keeps it.

    Attributes:
        time: UTC, ISO 8601 to the second.
        job: the name that the run gives its job; `folder` its folder without stamps and counts of attempts.
        nodes: those at fault, else where it broke first.
        error: the first error without its numbers; `framework` and it tell whether two failures are alike.
        failure: tells this failure from another of the same job; the same failure diagnosed again has the same.
    """

    session: str
    time: str
    user: str
    host: str
    folder: str
    root: str
    cause: str
    status: str
    failure: str
    job: str = ""
    job_id: str = ""
    confidence: float = 0.0
    framework: str = ""
    error: str = ""
    gpus: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)
    step: int | None = None
    attempt: int | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is looked for; empty fields ask for nothing. `job` is part of a name or a folder, or a whole id."""

    cause: str = ""
    node: str = ""
    job: str = ""
    since: timedelta | None = None
    limit: int = 20


def now() -> str:
    """The time as rows keep it."""
    return stamp(datetime.now(UTC))


def stamp(when: datetime) -> str:
    """UTC to the second; it sorts as text."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def put(base: sqlite3.Connection, entry: Entry) -> None:
    """Keep a row; one of the same session gives way."""
    row = asdict(entry) | {"gpus": json.dumps(entry.gpus)}
    marks = ", ".join(f":{name}" for name in _COLUMNS)
    base.execute(f"INSERT OR REPLACE INTO diagnoses ({', '.join(_COLUMNS)}) VALUES ({marks})", row)
    base.execute("DELETE FROM nodes WHERE session = ?", (entry.session,))
    base.executemany("INSERT OR IGNORE INTO nodes VALUES (?, ?)", [(entry.session, n) for n in entry.nodes])


def found(base: sqlite3.Connection, wanted: Wanted) -> list[Entry]:
    """Rows that fit, newest first."""
    tests, values = ["1"], []
    if wanted.cause:
        tests.append("cause = ?")
        values.append(wanted.cause)
    if wanted.node:
        tests.append("session IN (SELECT session FROM nodes WHERE node = ?)")
        values.append(wanted.node)
    if wanted.job:
        tests.append("(instr(job, ?) OR instr(folder, ?) OR job_id = ?)")
        values += [wanted.job] * 3
    if wanted.since is not None:
        tests.append("time >= ?")
        values.append(stamp(datetime.now(UTC) - wanted.since))
    return _rows(base, f"{' AND '.join(tests)} ORDER BY time DESC, session DESC LIMIT ?", [*values, wanted.limit])


def by_session(base: sqlite3.Connection, session: str) -> Entry | None:
    """The row of a session."""
    return next(iter(_rows(base, "session = ?", [session])), None)


def earlier(base: sqlite3.Connection, entry: Entry) -> list[Entry]:
    """Other failures of the same cause that share its job or a node, newest first, each failure once."""
    marks = ", ".join("?" * len(entry.nodes))
    shared = f"OR session IN (SELECT session FROM nodes WHERE node IN ({marks}))" if entry.nodes else ""
    rows = _rows(
        base,
        "cause = ? AND session != ? AND failure != ?"
        f" AND (folder = ? OR (job != '' AND job = ? AND user = ?) {shared}) ORDER BY time DESC LIMIT 200",
        [entry.cause, entry.session, entry.failure, entry.folder, entry.job, entry.user, *entry.nodes],
    )
    return list({r.failure: r for r in reversed(rows)}.values())[::-1]


def same_job(one: Entry, other: Entry) -> bool:
    """Whether two rows are of one job: in one folder, or of one name by one user."""
    return one.folder == other.folder or (one.job != "" and (one.job, one.user) == (other.job, other.user))


def as_before(entry: Entry, now: Entry) -> Before:
    """An earlier row as the report tells it."""
    same = [
        "cause",
        *(["job"] if same_job(entry, now) else []),
        *(["node"] if set(entry.nodes) & set(now.nodes) else []),
    ]
    fields = {"session": entry.session, "time": entry.time, "cause": entry.cause, "status": entry.status}
    return Before.model_validate({**fields, "same": same, "nodes": entry.nodes})


def _rows(base: sqlite3.Connection, where: str, values: Iterable[object]) -> list[Entry]:
    rows = base.execute(f"SELECT {', '.join(_COLUMNS)} FROM diagnoses WHERE {where}", list(values)).fetchall()
    made = []
    for row in rows:
        nodes = [
            n[0] for n in base.execute("SELECT node FROM nodes WHERE session = ? ORDER BY node", (row["session"],))
        ]
        made.append(Entry(**{**dict(row), "gpus": json.loads(row["gpus"] or "[]"), "nodes": nodes}))
    return made


# ----------
# A report as a row of the history: whose job it is, what failed, on which nodes, and what tells it from another.

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
    from ...safety.redact import Redactor

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
    from ...reading.settings.settings import read_settings

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
    from ...reading.run.lines import template_of

    found = [e for e in facts.get("error.first") if e.kind != "absent"]
    return template_of(str(found[0].value).encode())[:_LONG] if found else ""


def error_in(report: Report) -> str:
    """The same of a report that is all there is: from what it cites."""
    from ...reading.run.lines import template_of

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


# ----------
# An incident of the team's own: what a corrected session looked at, labelled with the truth, for `doctor eval`.

MARKS = 4
MARK_LENGTH = 200
_NAME = re.compile(r"[\w-]{1,80}", re.ASCII)


def name_of(session: str) -> str:
    """The folder of a session's incident: never a path."""
    return session if _NAME.fullmatch(session) else f"session-{hashlib.sha256(session.encode()).hexdigest()[:16]}"


def labels(report: Report, truth: str, note: str, files: Mapping[str, bytes], question: str) -> str:
    """`incident.yaml`: the truth, and the lines that decide, as far as they stand in the files.

    Args:
        files: texts by name below `files/`, with secrets taken out.
        question: with secrets taken out, like `note`.
    """
    marks = [
        {"file": e.file, "text": text}
        for e in _decisive(report, truth)
        if e.file and (text := e.text.strip()[:MARK_LENGTH].strip()) and text.encode() in files.get(e.file, b"")
    ]
    rows: dict[str, object] = {
        "id": name_of(report.session), "source": "feedback of this team", "family": truth.partition(".")[0],
        "difficulty": "own", "question": " ".join(question.split()) or "What is wrong with this run?",
        "expected": [truth], "acceptable": [], "evidence": _once(marks)[:MARKS], "confirmed_by": "feedback",
        "why": note,
    }  # fmt: skip
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in rows.items())


def keep(place: Place, session: str, yaml: str, files: Mapping[str, bytes]) -> Path:
    """Write the incident whole, in place of an earlier one of the same session; its folder.

    Raises:
        OSError: the place cannot be written.
    """
    new_folder(place.incidents, place)
    target = place.incidents / name_of(session)
    with tempfile.TemporaryDirectory(dir=place.incidents, prefix=".making-") as scratch:
        made = Path(scratch) / "made"
        (made / "files").mkdir(parents=True)
        (made / "incident.yaml").write_text(yaml, encoding="utf-8")
        for name, data in files.items():
            path = made / "files" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        _open_to_group(made, place)
        if target.is_dir():
            target.rename(Path(scratch) / "before")
        made.rename(target)
    return target


def relabel(place: Place, session: str, yaml: str) -> Path | None:
    """Write new labels for an incident whose run is gone; None where there is no incident."""
    target = place.incidents / name_of(session)
    if not (target / "files").is_dir():
        return None
    with tempfile.NamedTemporaryFile("w", dir=target, delete=False, encoding="utf-8") as f:
        f.write(yaml)
    Path(f.name).chmod(file_mode(place))
    Path(f.name).replace(target / "incident.yaml")
    return target


def kept_files(place: Place, session: str) -> dict[str, bytes]:
    """The texts of an incident, by name."""
    folder = place.incidents / name_of(session) / "files"
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def drop(place: Place, session: str) -> bool:
    """Remove the incident of a session; whether there was one."""
    target = place.incidents / name_of(session)
    if not target.is_dir():
        return False
    with tempfile.TemporaryDirectory(dir=place.incidents, prefix=".gone-") as scratch:
        target.rename(Path(scratch) / "gone")
    return True


def _decisive(report: Report, truth: str) -> list[CitedEvidence]:
    """What speaks for the truth, and what the report is about where that is not known, most telling first."""
    by_id = {e.id: e for e in report.evidence}
    ids = [i for d in report.differential if d.id == truth for i in d.supported_by]
    if report.root_cause.id == truth:
        ids += [link.evidence for link in report.chain if link.role == "cause"]
    found = [by_id[i] for i in dict.fromkeys(ids) if i in by_id]
    return [e for e in found if e.kind == "line"]


def _once(marks: list[dict[str, str]]) -> list[dict[str, str]]:
    return [m for number, m in enumerate(marks) if m not in marks[:number]]


def _open_to_group(folder: Path, place: Place) -> None:
    """The bits of the history's other files, instead of those of a temporary folder."""
    mode = file_mode(place)
    for path in (folder, *folder.rglob("*")):
        path.chmod((mode | (mode >> 2) & 0o110) if path.is_dir() else mode)
