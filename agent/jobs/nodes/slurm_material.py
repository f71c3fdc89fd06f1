"""What a triage of a Slurm job reads: its logs, what Slurm told, its script, the files that the script names."""

from __future__ import annotations

import glob
import json
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from .slurm_job import SlurmJob

LOGS, NAMED, LARGEST = 4096, 24, 4 << 20  # files of ranks; files and folders named in a script; bytes of such a file
_SUFFIXES = (".py", ".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".sh", ".txt")
_FOLDER = re.compile(r"--?[\w.-]*(?:out|save|log|ckpt|checkpoint|run)[\w-]*(?:dir|path|folder|root)?[= ](\S+)")
_SUPERVISED_RUN = re.compile(r"\bdoctor\s+run\b[^\n]*?--run[= ](\S+)")
_EARLY, _RUNS, _RECORD = 120.0, 64, 1 << 20  # seconds of clocks apart; newest runs looked at; bytes of a record


@dataclass(slots=True)
class Material:
    """Paths to read, where a report goes, and what could not be read."""

    paths: list[str]
    notes: list[str]
    places: list[Path]  # where a report may go, best first


def material(job: SlurmJob, state: Path) -> Material:
    """Everything of a job that can be read from here.

    Args:
        state: doctor's own folder, where Slurm's answers are put as files, so that a report can cite their lines.
    """
    notes = list(job.notes)
    paths = [str(_told(job, state))]
    logs, runs = list(_logs(job, notes)), list(_supervised(job))
    paths += [str(p) for p in dict.fromkeys([*logs, *runs, *_named(job)])]
    if job.again:
        notes.append(f"job {job.id} was put back into the queue: what follows is about what it wrote so far")
    elif job.state == "PENDING":
        notes.append(f"job {job.id} has not begun")
    elif job.running and os.environ.get("SLURM_JOB_ID") != job.id:  # a script that asks for its own job knows that
        notes.append(f"job {job.id} still runs: what follows is about what it wrote so far")
    name = f"doctor-slurm-{re.sub(r'[^0-9A-Za-z]', '_', job.id)}"  # many jobs share a folder for their logs
    beside = [*(log.parent for log in logs[:1]), *([job.folder] if job.folder else [])]
    return Material(paths, notes, [*runs, *(place / name for place in beside)])


def report_folder(found: Material) -> Path | None:
    """The folder for a report, made where it is lacking; None where none can be written."""
    for place in found.places:
        try:
            place.mkdir(exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK):
            return place
    return None


def readable(job: SlurmJob) -> list[Path]:
    """Logs and files of `doctor run` that can be read from here."""
    inner = (p for run in _supervised(job) for p in sorted((run / "doctor-run").rglob("*"))[:LOGS] if p.is_file())
    return list(dict.fromkeys([*_logs(job, []), *inner]))


def _told(job: SlurmJob, state: Path) -> Path:
    folder = state / "slurm" / re.sub(r"\W", "_", job.id)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in folder.iterdir():
        old.unlink()
    for name, text in job.told.items():
        (folder / name).write_text(text, encoding="utf-8", errors="replace")
    return folder


def _logs(job: SlurmJob, notes: list[str]) -> Iterator[Path]:
    here = socket.gethostname().split(".")[0]
    for path in job.outputs:
        found = _globbed(str(path))
        if found:
            yield from found
        elif job.state != "PENDING":
            why = _absent(path)
            notes.append(f"{path}: {why} (asked on {here}; doctor collect --slurm {job.id} asks the job's nodes)")
    for pattern in job.patterns:
        yield from _globbed(str((job.folder or Path()) / pattern)) if pattern else ()


def _globbed(pattern: str) -> list[Path]:
    """A path may hold brackets of its own: only stars that stand for what is unknown are wild."""
    if "*" not in pattern:
        return [Path(pattern)] if _is_file(pattern) else []
    wild = "*".join(glob.escape(part) for part in pattern.split("*"))
    found = sorted(glob.glob(wild))[:LOGS]  # noqa: PTH207 - Path.glob cannot begin at the root
    return [Path(p) for p in found if _is_file(p)]


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file() and os.access(path, os.R_OK)
    except OSError:
        return False


def _absent(path: Path) -> str:
    try:
        path.stat()
    except PermissionError:
        return "may not be read by this user"
    except OSError as e:
        return "is not here: gone, or on a disk of the node" if e.errno == 2 else f"cannot be read: {e.strerror}"
    return "may not be read by this user"


def _named(job: SlurmJob) -> Iterator[Path]:
    """Scripts, settings and output folders that the batch script names, where they are not huge."""
    if job.folder is None or not job.script:
        return
    body = "\n".join(line for line in job.script.splitlines() if not line.lstrip().startswith("#"))
    outside = {job.folder.resolve(), *job.folder.resolve().parents, Path.home(), Path("/tmp"), Path("/")}
    words = dict.fromkeys(re.findall(r"[\w./+=@:-]+", body))
    found = 0
    for word in words:
        path = job.folder / word.rpartition("=")[2]
        if found < NAMED and path.suffix in _SUFFIXES and _is_file(str(path)) and path.stat().st_size <= LARGEST:
            found += 1
            yield path
    for name in dict.fromkeys(_FOLDER.findall(body)):
        path = job.folder / name.strip("\"'")
        if found < NAMED and "$" not in name and path.is_dir() and path.resolve() not in outside:
            found += 1
            yield path


def _supervised(job: SlurmJob) -> Iterator[Path]:
    """Folders of `doctor run` that belong to this job: named in its script, or begun within its time on its nodes."""
    if job.folder is None:
        return
    for name in dict.fromkeys(_SUPERVISED_RUN.findall(job.script)):
        path = job.folder / name.strip("\"'").replace("$SLURM_JOB_ID", job.id).replace("${SLURM_JOB_ID}", job.id)
        if (path / "doctor-run").is_dir():
            yield path
    try:
        runs = sorted((job.folder / "doctor-runs").iterdir(), reverse=True)[:_RUNS]
    except OSError:
        return
    for run in runs:
        if any(_is_of(record, job) for record in run.glob("doctor-run/try_*/r*.json")):
            yield run


def _is_of(record: Path, job: SlurmJob) -> bool:
    try:
        with record.open("rb") as stream:
            said = json.loads(stream.read(_RECORD))
        began, host = _seconds(said.get("began")), str(said.get("host", ""))
    except (OSError, ValueError, AttributeError, RecursionError):
        return False
    if (number := str(said.get("slurm_job", ""))) and number != "None":
        return number == re.split(r"[_+]", job.id)[0]
    first, last = _seconds(job.began), _seconds(job.ended)
    if began is None or first is None or not _holds(job.nodes, host.split(".")[0]):
        return False
    return began >= first - _EARLY and (last is None or began <= last + _EARLY)


def _seconds(text: object) -> float | None:
    """Since 1970; Slurm writes local time without a zone, a record of `doctor run` names its zone."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _holds(listed: str, host: str) -> bool:
    from .slurm_nodes import hostnames

    return bool(host) and host in hostnames(listed)
