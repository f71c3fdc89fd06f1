"""A tiny real training, carried out in a folder of its own, and what it leaves made into an incident's files.

Used by record.py and repair.py, which the interpreter of the recording environment runs: nothing of doctor is imported.
A run sees a host called node01 and a folder under /mnt where the system allows such a private view; what still names
the machine it was recorded on is rewritten afterwards.
"""

from __future__ import annotations

import os
import pickletools
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KEPT_BYTES = 200_000  # of one file; above it nothing is kept, unless the entry asks for more
HOST, FOLDER, ENVIRONMENT, PRIVATE = "node01", "/data/run", "/opt/venv", "/mnt"
DROPPED = re.compile(
    r"(^|/)(__pycache__|\.cache|tmp|home)(/|$)|\.(safetensors|bin|pyc|lock)$|(^|/)(tokenizer\.json|last\.pt|core)$"
    r"|(^|/)checkpoint-\d+/(?!trainer_state)"
)
LIMIT_S = 400.0
GROUPS = ("cpu", "memory")  # controllers of cgroup v1
SLURM = ("slurmctld", "slurmd", "slurmdbd", "mariadbd", "munged", "sbatch", "sacct", "srun")
_UNPRINTED = re.compile(rb"[\x01-\x07\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass
class Entry:
    """One run of a table (`runs.yaml`); CONTRIBUTING.md says what each key means."""

    name: str
    folder: Path  # of the table
    framework: str
    loggers: list[str]
    launch: str
    script: str = ""
    beside: list[str] = field(default_factory=list)  # `with` in the table
    tree: str = ""  # a whole checkout, laid out before everything else; all of it is kept
    edits: dict[str, dict[str, str]] = field(default_factory=dict)  # file -> what stands there once -> what is to
    code: bool = False
    files: dict[str, str] = field(default_factory=dict)
    before: str = ""
    needs: list[str] = field(default_factory=list)  # of `AT_HAND`: where one is not there, the run is passed over
    ends: list[int] = field(default_factory=lambda: [0])
    stop: str = ""
    limit: float = LIMIT_S
    shows: dict[str, str] = field(default_factory=dict)
    keeps: str = ""  # kept in spite of DROPPED and KEPT_BYTES
    drops: str = ""
    labels: dict[str, Any] = field(default_factory=dict)
    repair: dict[str, Any] = field(default_factory=dict)

    @property
    def scripts(self) -> dict[str, Path]:
        """What lies in the run's folder before it starts, by the name it has there."""
        own = {"train.py": self.folder / self.script} if self.script else {}
        return own | {Path(name).name: self.folder / name for name in self.beside}


def entry(name: str, folder: Path, row: dict[str, Any]) -> Entry:
    """An entry from its row; an unknown key is a TypeError that names it."""
    row = dict(row)
    row["beside"] = row.pop("with", [])
    ends = row.pop("ends", 0)
    return Entry(name=name, folder=folder, ends=ends if isinstance(ends, list) else [ends], **row)


def _slurm() -> bool:
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return all(shutil.which(name, path=path) for name in SLURM)


AT_HAND: dict[str, Callable[[], bool]] = {
    "root": lambda: os.geteuid() == 0,
    "cgroup1": lambda: all(os.access(f"/sys/fs/cgroup/{g}/cgroup.procs", os.W_OK) for g in GROUPS),
    "slurm": _slurm,
}


def wanting(run: Entry) -> list[str]:
    """What a run needs and this machine has not.

    Raises:
        ValueError: a need that nobody knows how to look for.
    """
    if unknown := [need for need in run.needs if need not in AT_HAND]:
        raise ValueError(f"{run.name} needs {', '.join(unknown)}: known are {', '.join(AT_HAND)}")
    return [need for need in run.needs if not AT_HAND[need]()]


def prepared(run: Entry, work: Path) -> str:
    """Lay the run out; what went wrong before the launch, in a line, or nothing."""
    try:
        lay_out(run, work)
    except subprocess.CalledProcessError as e:
        said = " ".join(e.stderr.decode(errors="replace")[-400:].split())
        return f"what comes before the launch failed: {said}"
    except subprocess.TimeoutExpired:
        return f"what comes before the launch took longer than {run.limit:g} s"
    return ""


def lay_out(run: Entry, work: Path) -> None:
    """Make the run's folder as it is before the start, and carry out what comes before the launch.

    Raises:
        ValueError: what is to be edited does not stand in its file once.
        subprocess.CalledProcessError: what comes before failed.
        subprocess.TimeoutExpired: it took longer than the run may.
    """
    work.mkdir(parents=True)
    (work / "home").mkdir()
    if run.tree:
        kept = shutil.ignore_patterns("__pycache__")
        shutil.copytree(run.folder / run.tree, work, ignore=kept, dirs_exist_ok=True)
    for name, changes in run.edits.items():
        text = (work / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            if text.count(old) != 1:
                raise ValueError(f"{run.name}: {old!r} stands {text.count(old)} times in {name}")
            text = text.replace(old, new)
        (work / name).write_text(text, encoding="utf-8")
    for name, path in run.scripts.items():
        shutil.copy(path, work / name)
    for name, text in run.files.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")
    (work / "launch.sh").write_text("#!/bin/bash\n" + run.launch, encoding="utf-8")
    if run.before:
        inside, command = private_view(work, ["bash", "-e", "-c", run.before])
        subprocess.run(command, cwd=work, env=environment(inside, run.before), check=True, timeout=run.limit,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip


def carry_out(run: Entry, work: Path) -> int:
    """Run what `launch` says in `work`; the exit status, 0 where the run was meant to be looked at half-way."""
    inside, command = private_view(work, ["bash", "launch.sh"])
    job = subprocess.Popen(
        command, cwd=work, env=environment(inside, run.launch), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + run.limit
    try:
        while job.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
            if run.stop and any(run.stop in log.read_text(errors="replace") for log in work.rglob("*.log")):
                time.sleep(1)
                return 0
        return job.returncode if job.returncode is not None else 124
    finally:
        if job.poll() is None:
            shutil.copytree(work, work.with_name("seen"), symlinks=True)
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            shutil.rmtree(work)
            work.with_name("seen").rename(work)


def environment(inside: str, launch: str) -> dict[str, str]:
    """The variables of a run: few, and the same everywhere."""
    env = {
        "PATH": f"{sysconfig.get_path('scripts')}:/usr/local/bin:/usr/bin:/bin", "HOME": f"{inside}/home",
        "USER": "user", "LOGNAME": "user", "LANG": "C.UTF-8", "HF_HUB_OFFLINE": "1", "TERM": "dumb", "COLUMNS": "120",
        "TORCH_EXTENSIONS_DIR": f"{tempfile.gettempdir()}/healthy-extensions",  # DeepSpeed compiles for minutes
        "WANDB_HOST": HOST, "WANDB_X_DISABLE_META": "true", "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    if "torchrun" not in launch:
        env["OMP_NUM_THREADS"] = "1"
    return env


def private_view(work: Path, argv: list[str]) -> tuple[str, list[str]]:
    """The folder as the run sees it, and the command that starts it; a view of its own needs to be root."""
    root = os.geteuid() == 0 and shutil.which("unshare") is not None
    if not root or subprocess.run(["unshare", "-um", "true"], check=False).returncode:
        return str(work), argv
    setup = [f"hostname {HOST}", f"mount -t tmpfs none {PRIVATE}", f"mkdir {PRIVATE}/run {PRIVATE}/venv"]
    setup += [f"mount --bind {work} {PRIVATE}/run", f"mount --bind {sys.prefix} {PRIVATE}/venv"]
    setup += [f"echo 127.0.0.1 localhost {HOST} > {PRIVATE}/hosts", f"mount --bind {PRIVATE}/hosts /etc/hosts"]
    inside = [f"cd {PRIVATE}/run", f"export PATH={PRIVATE}/venv/bin:$PATH", 'exec "$@"']
    return f"{PRIVATE}/run", ["unshare", "-um", "bash", "-c", " && ".join(setup + inside), "view", *argv]


def neutral(work: Path, here: Path) -> list[tuple[bytes, bytes]]:
    """What is rewritten in the text a run left: its folder, the environment's folder, the host's name and addresses."""
    pairs = [
        (str(work), FOLDER), (f"{PRIVATE}/run", FOLDER), (f"{PRIVATE}/venv", ENVIRONMENT),
        (sys.prefix, ENVIRONMENT), (sys.base_prefix, "/usr"), (socket.gethostname(), HOST), (str(here), FOLDER),
    ]  # fmt: skip
    found = [(a.encode(), b.encode()) for a, b in pairs if len(a) > 3]
    try:
        address = socket.gethostbyname(socket.gethostname())
    except OSError:
        return found
    return found if address.startswith("127.") else [*found, (address.encode(), b"10.0.0.1")]


def keep(run: Entry, work: Path, target: Path) -> int:
    """Copy what a run left into an incident's files/, which is emptied first; the bytes kept."""
    shutil.rmtree(target, ignore_errors=True)
    size, pairs, here = 0, neutral(work, run.folder), socket.gethostname()
    for path in sorted(p for p in work.rglob("*") if p.is_file() and not p.is_symlink()):
        inner = path.relative_to(work).as_posix()
        wanted = bool(run.keeps) and re.search(run.keeps, inner) is not None
        hidden = inner in run.scripts and inner.endswith(".py") and not run.code
        unasked = DROPPED.search(inner) or path.stat().st_size > KEPT_BYTES
        if hidden or (unasked and not wanted) or (run.drops and re.search(run.drops, inner)):
            continue
        data = rewritten(path.read_bytes(), pairs)
        place = target / (inner.replace(here, HOST) if len(here) > 3 else inner)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        size += len(data)
    return size


def rewritten(data: bytes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """A text, or the words of a pickle, with each pair's first part given as its second; other files as they are."""

    def plain(text: bytes) -> bytes:
        for old, new in pairs:
            text = text.replace(old, new)
        return text

    if is_text(data):
        return plain(data)
    if not data.startswith(b"\x80"):
        return data
    parts, done = [], 0
    try:
        for op, word, at in pickletools.genops(data):
            if op.name == "BINUNICODE" and isinstance(word, str) and at is not None:  # its length stands before it
                old = word.encode("utf-8", "surrogatepass")
                new = plain(old)
                parts += [data[done:at], b"X", len(new).to_bytes(4, "little"), new]
                done = at + 5 + len(old)
    except ValueError:  # not a pickle, or cut short
        return data
    return b"".join([*parts, data[done:]])


def is_text(data: bytes) -> bool:
    """Whether a file is read as text, also one that a crash or a sparse write has left NUL bytes in."""
    if b"\0" not in data:
        return True
    printed = data.replace(b"\0", b"")
    try:
        printed.decode()
    except UnicodeDecodeError:
        return False
    return bool(printed) and not _UNPRINTED.search(printed)


def lacking(shows: dict[str, str], files: Path) -> list[str]:
    """What a run was to leave and did not: `file: pattern` for each pattern that no file of that name pattern has."""
    missing = []
    for name, pattern in shows.items():
        texts = (p.read_text(encoding="utf-8", errors="replace") for p in files.glob(name) if p.is_file())
        if not any(re.search(pattern, text, re.MULTILINE) for text in texts):
            missing.append(f"{name}: {pattern}")
    return missing
