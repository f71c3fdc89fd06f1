"""Logs, kernel lines and stacks of every node of an allocation, brought together in one folder, secrets taken out."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import sys
import tarfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from ...core.errors import UsageError
from ...reading.run.discover import MANIFEST, SCHEMA
from ...safety.fences import one_line
from .engine import Answer, Engine

SECONDS = 60.0  # that a node may take
_PARTS = 96  # bytes of one part of a name below a node's folder


@dataclass(slots=True)
class Order:
    """What is brought from where.

    Attributes:
        paths: files, folders or patterns, as they are called on the nodes.
        limit: bytes of each node.
        since: seconds since 1970 from which on the kernel's lines are the job's.
        here: files that can be read from here, which a node with the same shared folder need not send.
        beside: further files for the folder, by name, such as what the scheduler told.
    """

    paths: list[str]
    limit: int
    job: str = ""
    alive: bool = False
    since: float = 0.0
    here: list[Path] = field(default_factory=list)
    beside: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Gathered:
    """How it went. `silent`: nodes that gave nothing or not everything, with a phrase that can follow their name."""

    answered: int
    files: int
    redacted: int
    silent: list[tuple[str, str]]


def gather(engine: Engine, order: Order, into: Path) -> Gathered:
    """Fill a new folder with what every node hands over, a folder for each, and a manifest.

    Raises:
        UsageError: the folder is there already or cannot be made, or no node is known.
    """
    nodes = engine.nodes()
    _make(into)
    away = [n for n in nodes if not n.reachable]
    source = Path(_program()).read_bytes()
    words = {"paths": order.paths, "limit": order.limit, "job": order.job, "alive": order.alive, "since": order.since,
             "seen": _seen(order.here)}  # fmt: skip
    asked = [n.name for n in nodes if n.reachable]
    answers = engine.run(["python3", "-", json.dumps(words)], asked, SECONDS, source, order.limit + (4 << 20))
    unpacking = _Unpacking(into)
    entries = [unpacking.node(answer) for answer in answers]
    entries += [{"node": n.name, "folder": "", "answered": False, "why": f"is {n.state}", "files": []} for n in away]
    for path in order.here:
        unpacking.shared(path, order.limit)
    for name, text in order.beside.items():
        unpacking.put(Path("slurm") / name, text.encode())
    said = {"schema": SCHEMA, "engine": engine.name, "job": order.job, "made": time.time(),
            "redacted": unpacking.redacted, "nodes": entries}  # fmt: skip
    (into / MANIFEST).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    silent = [(str(e["node"]), str(e["why"])) for e in entries if not e["answered"]]
    return Gathered(len(entries) - len(silent), unpacking.files, unpacking.redacted, silent)


def _make(into: Path) -> None:
    try:
        into.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"{into} is there", "name another folder with --into") from None
    except OSError as e:
        raise UsageError(f"cannot make {into}: {e.strerror}", "name another folder with --into") from None


def _program() -> str:
    spec = importlib.util.find_spec(f"{__package__}.on_node")
    assert spec and spec.origin
    return spec.origin


def _seen(here: list[Path]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for path in here:
        try:
            info = path.stat()
        except OSError:
            continue
        found[str(path)] = [info.st_size, int(info.st_mtime), info.st_ino]
    return found


class _Unpacking:
    """Members of the nodes' parcels as files below the folder: plain ones with tame names, text without secrets."""

    def __init__(self, into: Path) -> None:
        from ...safety.redact import Redactor

        self._into, self._redactor = into, Redactor()
        self._taken: set[str] = set()
        self.files = 0

    @property
    def redacted(self) -> int:
        return self._redactor.count

    def node(self, answer: Answer) -> dict[str, object]:
        """Unpack what a node sent; of one that broke off what had come."""
        folder = _tame(answer.node)
        while folder in self._taken or folder in ("", "slurm", "shared"):
            folder += "_"
        self._taken.add(folder)
        kept, listing, why = [], [], answer.why or _failed(answer)
        try:
            with tarfile.open(fileobj=io.BytesIO(answer.stdout), mode="r|") as tar:
                for member in tar:
                    stream = tar.extractfile(member) if member.isreg() else None
                    if stream is None:
                        continue
                    data, name = stream.read(), _inside(member.name)
                    if str(name) == "node.json":
                        listing = json.loads(data).get("listing", [])
                    else:
                        self.put(Path(folder) / name, data)
                        kept.append(str(name))
        except (tarfile.TarError, EOFError, OSError, ValueError) as e:
            why = why or f"sent something that is no parcel ({type(e).__name__})"
        return {"node": answer.node, "folder": folder if kept else "", "answered": not why, "why": why,
                "seconds": round(answer.seconds, 1), "files": kept, "listing": listing}  # fmt: skip

    def shared(self, path: Path, limit: int) -> None:
        """A file that can be read from here; of a long one the end."""
        try:
            size = path.stat().st_size
            with path.open("rb") as stream:
                stream.seek(max(0, size - limit))
                self.put(Path("shared") / _inside(str(path)), stream.read(limit))
        except OSError:
            return

    def put(self, name: Path, data: bytes) -> None:
        target = self._into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if b"\0" not in data[:4096]:
            data = self._redactor.redact(data.decode(errors="replace")).encode()
        target.write_bytes(data)
        self.files += 1


def _failed(answer: Answer) -> str:
    if answer.code == 0:
        return ""
    said = [line for line in answer.stderr.strip().splitlines() if line.strip()]
    return f"failed with exit code {answer.code}: {said[-1][:200] if said else 'no word'}"


def _inside(name: str) -> Path:
    """A name that stays below a folder, whatever a node sent."""
    parts = [_tame(part) for part in PurePosixPath(name).parts if part not in ("/", "..", ".")]
    return Path(*(p for p in parts if p)) if parts else Path("unnamed")


def _tame(part: str) -> str:
    kept = re.sub(r"[^\w.,=@+ -]", "_", part)[:_PARTS]
    return kept if kept.strip(". ") else "_"


# ----------
# `doctor collect --slurm JOB` and `--ray ADDRESS`: which engine, which paths, and what is said about it.

# What a Ray session keeps on a node about jobs and their processes; its own machinery's chatter stays there.
RAY_LOGS = tuple(
    f"/tmp/ray/session_latest/logs/{name}"
    for name in ("job-driver-*.log", "worker-*.out", "worker-*.err", "raylet.err", "gcs_server.err", "monitor.log")
)


def gathered(slurm: str, ray: str, paths: list[str], into: Path | None, limit: int, quiet: bool) -> Path:
    """Ask every node, and say on stderr what came and which did not answer.

    Raises:
        UsageError: no such job or cluster, or the folder is there already.
    """
    if slurm and ray:
        raise UsageError("--slurm and --ray exclude each other", "name the one that runs the nodes")
    label = re.sub(r"\W", "_", slurm) if slurm else "ray"
    folder = into or Path(f"doctor-nodes-{label}-{datetime.now().astimezone():%Y%m%d-%H%M%S}")
    done = _of_slurm(slurm, paths, folder, limit) if slurm else _of_ray(ray, paths, folder, limit)
    for name, why in done.silent:
        sys.stderr.write(f"doctor: {one_line(f'{name} {why}')}\n")
    if not quiet:
        said = f"{one_line(str(folder))}: {done.answered} of {done.answered + len(done.silent)} nodes answered, "
        said += f"{done.files} files, {done.redacted} secrets taken out"
        sys.stderr.write(f"{said}\n")
    if not done.answered:
        raise UsageError("no node answered", f"what is known stands in {one_line(str(folder))}")
    return folder


def _of_slurm(number: str, paths: list[str], folder: Path, limit: int) -> Gathered:
    from .slurm_job import job_of
    from .slurm_material import readable
    from .slurm_nodes import SlurmEngine, SlurmShell

    shell = SlurmShell()
    job = job_of(number, shell)
    here = readable(job)
    base = job.folder or Path("/")
    asked = [str(p) for p in job.outputs] + [str(base / p) for p in job.patterns if p]
    asked += [str(base / p) for p in paths]
    engine = SlurmEngine(number, shell=shell)
    order = Order(asked, limit, number, engine.alive, _since(job.began), here, job.told)
    return gather(engine, order, folder)


def _of_ray(address: str, paths: list[str], folder: Path, limit: int) -> Gathered:
    from .ray_nodes import RayCluster

    with RayCluster(address) as cluster:
        return gather(cluster, Order([*RAY_LOGS, *paths], limit, since=time.time() - 24 * 3600), folder)


def _since(began: str) -> float:
    try:
        return datetime.fromisoformat(began).timestamp()
    except ValueError:
        return time.time() - 24 * 3600
