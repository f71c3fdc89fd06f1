"""The battery of real jobs: its entries, the folder each is started in, and the start with and without supervisor."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
DOCTOR = str(Path(sys.executable).with_name("doctor"))
LIMIT = 120.0  # seconds after which a job or a report counts as never ending
NEVER = -999  # the code of a job that did not end
GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass(frozen=True)
class Entry:
    """One job of battery.yaml."""

    id: str
    script: str
    command: list[str]
    codes: tuple[int, ...]
    causes: tuple[str, ...]
    set: dict[str, str] = field(default_factory=dict)
    prepare: dict[str, Any] = field(default_factory=dict)
    outside: dict[str, str] = field(default_factory=dict)
    hang_after: float = 0.0
    quick: bool = False
    root: bool = False

    @property
    def possible(self) -> bool:
        """Whether this machine lets the job be made."""
        if self.root and os.geteuid() != 0:
            return False
        return "memory_group" not in self.prepare or os.access(GROUPS / "cgroup.procs", os.W_OK)


@dataclass
class Outcome:
    """How one job came out: its code, the verdict, and what was said."""

    entry: Entry
    code: int
    cause: str
    status: str
    said: str = ""

    @property
    def kept(self) -> bool:
        return self.code in self.entry.codes

    @property
    def right(self) -> bool:
        return self.cause in self.entry.causes


def entries() -> list[Entry]:
    """All jobs, those that fail first."""
    data = yaml.safe_load((HERE / "battery.yaml").read_text())
    return [*map(_entry, data["failing"]), *map(_entry, data["succeeding"])]


def _entry(row: dict[str, Any]) -> Entry:
    row = dict(row)
    code = row.pop("code", 0)
    causes = tuple(row.pop("causes", ("none.healthy",)))
    return Entry(codes=tuple(code) if isinstance(code, list) else (code,), causes=causes, **row)


def play(entry: Entry, place: Path) -> Outcome:
    """Make the job under `doctor run` in a folder of its own, and read its report (of a sound run: ask for one)."""
    work, run = place / "work", place / "run"
    work.mkdir(parents=True)
    shutil.copy(HERE / "scripts" / entry.script, work)
    with ExitStack() as kept:
        words = _prepared(entry, work, kept)
        python = sys.executable
        own = {"python": [python], "torchrun": [python, "-m", "torch.distributed.run"]}
        first = own.get(entry.command[0], entry.command[:1])
        inner = [python if w == "python" else w.format(python=python, **words) for w in entry.command[1:]]
        argv = [DOCTOR, "run", "--run", str(run)]
        argv += ["--hang-after", str(entry.hang_after), "--on-hang", "kill"] if entry.hang_after else []
        argv += ["--", *first, *inner]
        group = words.get("group")
        if group:
            argv = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh", *argv]
        started = time.monotonic()
        said = place / "said.txt"
        with said.open("wb") as out:
            job = subprocess.Popen(
                argv, cwd=work, env=_environment(entry, words), stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        kept.callback(_end, job)
        if entry.outside:
            _from_outside(entry, run, started)
        try:
            code = job.wait(LIMIT)
        except subprocess.TimeoutExpired:
            code = NEVER
    if 0 in entry.codes:
        _triage(run, place)
    return _outcome(entry, run, code, said.read_text(errors="replace"))


def _environment(entry: Entry, words: dict[str, str]) -> dict[str, str]:
    dropped = ("NCCL_", "TORCH", "PET_", "DOCTOR_RUN", "PYTEST", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "COV_")
    known = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    return known | {"OMP_NUM_THREADS": "1"} | {k: v.format(**words) for k, v in entry.set.items()}


def _prepared(entry: Entry, work: Path, kept: ExitStack) -> dict[str, str]:
    """What must lie or be held before the start; words that the command then uses."""
    wanted = entry.prepare
    if "data" in wanted or "shards" in wanted:
        _write_data(work / "data", wanted)
    if "checkpoint" in wanted:
        _write_checkpoint(work / "out", wanted["checkpoint"])
    if "disk" in wanted:
        kept.enter_context(_small_disk(work / "out", wanted["disk"]))
    words = {}
    if "memory_group" in wanted:
        words["group"] = str(kept.enter_context(_memory_group(entry.id)))
    holder = kept.enter_context(socket.socket())
    holder.bind(("127.0.0.1", 0))
    words["port"] = str(holder.getsockname()[1])
    if wanted.get("port") == "held":
        holder.listen()
    else:
        holder.close()
    return words


def _write_data(folder: Path, wanted: dict[str, Any]) -> None:
    folder.mkdir()
    shards = wanted.get("shards", 0)
    for shard in range(max(shards, 1)):
        rows = wanted.get("data", 200)
        if wanted.get("short") == shard:
            rows = 90
        lines = []
        for number in range(rows):
            x = [((number * 7 + k * 3 + shard) % 11) / 11 for k in range(8)]
            row: dict[str, Any] = {"x": x, "label": number % 10}
            if wanted.get("large_label") == number:
                row["label"] = 12
            if wanted.get("without_label") == (shard if shards else number):
                row["target"] = row.pop("label")
            lines.append(json.dumps(row).encode())
        if "latin1" in wanted:
            lines[wanted["latin1"]] = '{"x": [0,0,0,0,0,0,0,0], "label": 1, "note": "fünf"}'.encode("latin-1")
        name = f"shard_{shard}.jsonl" if shards else "train.jsonl"
        (folder / name).write_bytes(b"\n".join(lines) + b"\n")


def _write_checkpoint(folder: Path, kind: str) -> None:
    """As an earlier start of train.py would have left it: sound, cut short, or of a wrapped model."""
    import torch
    from torch import nn

    folder.mkdir()
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    weights = model.state_dict()
    if kind == "wrapped":
        weights = {f"module.{k}": v for k, v in weights.items()}
    path = folder / "step_20.pt"
    torch.save({"model": weights, "optimizer": optimizer.state_dict(), "step": 20}, path)
    if kind == "truncated":
        os.truncate(path, path.stat().st_size * 2 // 3)


@contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


@contextmanager
def _memory_group(name: str) -> Iterator[Path]:
    group = GROUPS / f"battery-{name}-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(300 << 20))
        yield group
    finally:
        deadline = time.monotonic() + 20  # until the last process of it is gone
        while group.exists() and time.monotonic() < deadline:
            with suppress(OSError):
                group.rmdir()
            time.sleep(0.1)


def _from_outside(entry: Entry, run: Path, started: float) -> None:
    """Send the signal once the line that is waited for was printed; the pid is the one on the record."""
    place = run / "doctor-run" / "try_1"
    while time.monotonic() - started < LIMIT:
        try:
            if entry.outside["after"] in (place / "console.log").read_text(errors="replace"):
                pid = json.loads((place / "record.json").read_text())["pid"]
                os.kill(pid, getattr(signal, entry.outside["signal"]))
                return
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.1)
    raise TimeoutError(f"{entry.id}: {entry.outside['after']!r} was never printed")


def _end(job: subprocess.Popen) -> None:
    if job.poll() is None:
        job.kill()
        job.wait()
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)


def _triage(run: Path, place: Path) -> None:
    argv = [DOCTOR, "triage", str(run), "--write", "--quiet", "--offline"]
    with (place / "triage.txt").open("wb") as out:
        subprocess.run(argv, stdout=out, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)


def _outcome(entry: Entry, run: Path, code: int, said: str) -> Outcome:
    try:
        report = json.loads((run / "doctor-report.json").read_text())
    except (OSError, ValueError) as e:
        return Outcome(entry, code, f"no report ({e})"[:80], "", said)
    return Outcome(entry, code, (report.get("root_cause") or {}).get("id") or "none", report.get("status", ""), said)
