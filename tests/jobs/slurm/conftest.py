"""One cluster for all tests of Slurm: it is started once a worker that needs it, with the hook's epilog on its nodes."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.jobs.slurm import cluster as slurm

USER = "nobody"


@pytest.fixture(scope="session")
def cluster(_cache_of_the_tests: None) -> Iterator[slurm.Cluster]:
    """A Slurm that runs; skips with the reason where none can. Several workers take turns."""
    with FileLock(Path(tempfile.gettempdir()) / "doctor-tests-slurm.lock"):
        if why := slurm.missing():
            pytest.skip(why)
        folder = Path(tempfile.mkdtemp(prefix="doctor-slurm-"))
        folder.chmod(0o755)
        made = slurm.Cluster(folder, node_epilog=_epilog(folder))
        made.environ["DOCTOR_CACHE"] = str(_cache(folder))
        try:
            made.start()
            yield made
        finally:
            made.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _cache(folder: Path) -> Path:
    """The tests' compiled patterns, for jobs of any user."""
    import os

    cache = folder / "cache"
    shutil.copytree(os.environ["DOCTOR_CACHE"], cache, ignore=shutil.ignore_patterns("*.lock", "index*"))
    for path in (cache, *cache.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    return cache


def _epilog(folder: Path) -> Path:
    """The hook as an administrator would put it in place: `doctor hook slurm -o FILE`."""
    file, logs = folder / "epilog.sh", folder / "hook logs"
    subprocess.run(
        [beside("doctor"), "hook", "slurm", "-o", str(file), "--doctor", str(launcher(folder)), "--logs", str(logs)],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    return file


def beside(name: str) -> str:
    """A program of the environment that the tests run in."""
    return str(Path(sys.executable).with_name(name))


def launcher(folder: Path) -> Path:
    """`doctor` for jobs of any user: an interpreter under root's home is closed to them, the system's is not."""
    file = folder / "doctor"
    packages = next(p for p in sys.path if p.endswith("site-packages"))
    system = Path("/usr/bin/python3")
    mine = sys.executable
    if not _may_run(mine) and system.exists() and _version(str(system)) == _version(mine):
        mine = str(system)
    python = folder / "env" / "bin" / "python3"
    if not python.exists():  # an environment of its own that lends its packages from that of the tests
        inner = folder / "env" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
        inner.mkdir(parents=True)
        python.parent.mkdir()
        python.symlink_to(mine)
        (folder / "env" / "pyvenv.cfg").write_text(f"home = {Path(mine).parent}\n")
        (inner / "lent.pth").write_text(f"import site; site.addsitedir({packages!r})\n")
    file.write_text(
        f"#!/bin/bash\nexport DOCTOR_CACHE='{folder}/cache' PYTHONDONTWRITEBYTECODE=1\n"
        f"exec '{python}' -P -c 'import sys; from traindoctor.agent.doors.cli import main; sys.exit(main())' \"$@\"\n"
    )
    file.chmod(0o755)
    return file


def _may_run(python: str) -> bool:
    done = subprocess.run(["runuser", "-u", USER, "--", python, "-c", ""], capture_output=True, timeout=30, check=False)
    return done.returncode == 0


def _version(python: str) -> bytes:
    words = [python, "-c", "import sys; print(sys.version_info[:2])"]
    return subprocess.run(words, capture_output=True, timeout=30, check=False).stdout


@pytest.fixture
def here(cluster: slurm.Cluster, doctor: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`doctor` in this process, as on a login node of the cluster: what starts a process costs seconds."""
    for name, value in cluster.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NO_COLOR", "1")
    return doctor
