"""`doctor collect --slurm JOB` and `--ray ADDRESS`: which engine, which paths, and what is said about it."""

from __future__ import annotations

import re
import sys
import time
from datetime import datetime
from pathlib import Path

from ..errors import UsageError
from ..sanitize import one_line
from .gather import Gathered, Order, gather

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
    from .slurm import SlurmEngine
    from .slurm_asking import SlurmShell
    from .slurm_job import job_of
    from .slurm_material import readable

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
