"""Jobs started by torchrun, once for all tests: what they leave is kept beside the caches of the tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent.parent.parent
KEPT = ROOT / ".pytest_cache" / "doctor" / "jobs"


def kept(name: str, told: bytes, make: Callable[[Path], object]) -> Path:
    """A folder that `make` filled; it is made again when what it is told by changed."""
    folder = KEPT / f"{name}-{hashlib.sha256(told).hexdigest()[:16]}"
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / f"{name}.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=KEPT) as scratch:
                work = Path(scratch) / "job"
                work.mkdir()
                make(work)
                shutil.move(work, folder)
    return folder


def left_by(job: str, ranks: int, *arguments: str) -> Path:
    """The folder that `tests/jobs/supervised/JOB.py FOLDER ARGUMENTS` filled when torchrun ran it with so many ranks."""
    source, shared = Path(__file__).with_name(f"{job}.py"), Path(__file__).with_name("forked.py")

    def run(work: Path) -> None:
        done = _torchrun(source, ranks, [str(work), *arguments], str(work.parent))
        (work / "torchrun.err").write_text(done.stderr)
        if done.returncode:
            raise RuntimeError(f"{job} ended with {done.returncode}: {done.stderr[-2000:]}")

    return kept(job, source.read_bytes() + shared.read_bytes() + repr((ranks, arguments)).encode(), run)


def _torchrun(source: Path, ranks: int, arguments: list[str], cwd: str) -> subprocess.CompletedProcess[str]:
    """Run from a copy, so that its frames name no folder of this checkout."""
    for path in (source, source.with_name("forked.py")):
        shutil.copy(path, cwd)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", source.name]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000", "PYTHONPATH": ""}
    return subprocess.run(
        [*argv, *arguments], cwd=cwd, env=env, capture_output=True, text=True, timeout=280, check=False
    )
