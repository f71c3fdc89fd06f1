"""Real jobs on this machine for the tests: started, given time to get stuck, ended with everything they started."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent


@contextmanager
def torchrun(mode: str, folder: Path, ranks: int = 2) -> Iterator[subprocess.Popen[bytes]]:
    """A Gloo job of `job.py`, working in `folder` and logging to `job.log` there, once its last rank is stuck."""
    argv = [str(BIN / "torchrun"), "--nproc-per-node", str(ranks), "--master-port", str(_port()), str(HERE / "job.py"), mode]
    with started(argv, folder) as job:
        _stuck(folder)
        yield job


@contextmanager
def two_ranks(mode: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The same job of two ranks under a shell, with the variables that torchrun would set: that takes half the time."""
    rank = f"RANK=$r LOCAL_RANK=$r {sys.executable} {HERE / 'job.py'} {mode} &"
    more = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_port())}
    with started(["sh", "-c", f"for r in 0 1; do {rank} done; wait"], folder, more) as job:
        _stuck(folder)
        yield job


def _stuck(folder: Path) -> None:
    wait_for(folder / "job.log", "stuck")
    time.sleep(1)  # the others reach their collective


@contextmanager
def started(argv: list[str], folder: Path, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a session of its own, ended with everything in it."""
    with (folder / "job.log").open("wb") as log:
        job = subprocess.Popen(
            argv, cwd=folder, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )  # fmt: skip
    try:
        yield job
    finally:
        _end(job)


def wait_for(log: Path, word: str, times: int = 1, seconds: float = 90) -> None:
    """Wait until a log holds a word so many times."""
    until = time.monotonic() + seconds
    while log.read_text(errors="replace").count(word) < times:
        assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
        time.sleep(0.05)


def _end(job: subprocess.Popen[bytes]) -> None:
    members = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and job.pid in _lineage(int(p.name))]
    for pid in [*members, job.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue
    job.wait(10)


def _lineage(pid: int) -> list[int]:
    found = [pid]
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            break
        pid = int(stat[stat.rindex(")") + 2 :].split()[1])
        found.append(pid)
    return found


def _port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@functools.cache
def skip_where_attaching_is_forbidden() -> None:
    """Some containers forbid to attach even to processes of one's own."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        time.sleep(0.5)
        argv = [str(BIN / "py-spy"), "dump", "--pid", str(child.pid)]
        dumped = subprocess.run(argv, capture_output=True, text=True, check=False)
        child.kill()
    if dumped.returncode and "ermission" in dumped.stderr:
        pytest.skip("attaching to processes is forbidden here")
