"""The folder of a run and of each attempt in it; several supervisors of one job step share an attempt."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..paths import state_folder
from ..sanitize import one_line
from .record import working_folder

_LOCK_SECONDS = 20.0
_PROGRAMS = re.compile(
    r"(?:python|pypy)[\d.]*|torchrun|accelerate|deepspeed|srun|mpirun|mpiexec|bash|sh|env|nice|uv|poetry"
)
_SCRIPT = re.compile(r"[^-].*\.(?:py|sh|bash|slurm|sbatch)")


@dataclass(frozen=True)
class Peers:
    """Which of several supervisors of one job step we are."""

    index: int
    count: int
    step: str  # the same for all of them, and for no others


def peers(environ: Mapping[str, str]) -> Peers | None:
    """Whether a launcher outside starts one of us for each rank (srun, mpirun), and which we are."""
    with contextlib.suppress(KeyError, ValueError):
        if environ.get("SLURM_STEP_ID", "").isdigit() and (count := int(environ["SLURM_STEP_NUM_TASKS"])) > 1:
            names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
            return Peers(int(environ["SLURM_PROCID"]), count, "slurm-" + ".".join(environ.get(n, "0") for n in names))
    with contextlib.suppress(KeyError, ValueError):
        if (count := int(environ["OMPI_COMM_WORLD_SIZE"])) > 1:
            step = re.sub(r"\W", "_", environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_orte_hnp_uri") or "mpi")
            return Peers(int(environ["OMPI_COMM_WORLD_RANK"]), count, f"mpi-{step}")
    return None


def name_of(argv: Sequence[str]) -> str:
    """A short name for a command: its script's stem, or else its program's."""
    if "-c" in argv:  # the text of a program is no name
        argv = argv[: argv.index("-c")]
    script = next((a for a in argv[1:] if _SCRIPT.fullmatch(a)), "")
    program = next((a for a in argv if not a.startswith("-") and not _PROGRAMS.fullmatch(Path(a).name)), argv[0])
    stem = Path(script or program).stem
    return re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII).strip("._")[:40] or "job"


def run_folder(named: str, argv: Sequence[str], step: Peers | None) -> tuple[Path | None, str]:
    """The folder of this run, made; and a line to tell, where it is not the one that was to be expected.

    A job that waited in a queue for days is not refused over a folder: the next one that can be written to is taken.
    None: there is none anywhere.
    """
    name = f"{step.step if step else time.strftime('%Y%m%d-%H%M%S')}-{name_of(argv)}"
    wanted = Path(named).absolute() if named else Path(working_folder() or "/nowhere") / "doctor-runs" / name
    if not (why := _unusable(wanted)):
        return wanted, ""
    shown = one_line(str(wanted))
    for other in (state_folder() / "runs" / name, Path(os.environ.get("TMPDIR", "/tmp")) / "doctor-runs" / name):
        if not _unusable(other):
            return other, f"cannot keep the run in {shown} ({why}); it is kept in {one_line(str(other))}"
    return None, f"cannot keep the run in {shown} ({why}) nor anywhere else: the job runs without doctor"


def _unusable(run: Path) -> str:
    """Why nothing can be kept in a folder, or "": it is made where it is missing."""
    try:
        (run / "doctor-run").mkdir(parents=True, exist_ok=True)
    except OSError as e:
        return e.strerror or "it cannot be made"
    return "" if os.access(run / "doctor-run", os.W_OK | os.X_OK) else "it cannot be written to"


def attempt_folder(run: Path, step: Peers | None) -> Path:
    """A new try_N, or the one that our peers of the same step have made already.

    Raises:
        OSError: the disk does not take it.
    """
    home = run / "doctor-run"
    with _locked(home):
        numbers = [int(p.name[4:]) for p in home.glob("try_*") if p.name[4:].isdigit()]
        last = home / f"try_{max(numbers, default=0)}"
        if step and not (last / f"rank_{step.index}.json").exists() and _step_of(last) == step.step:
            return last
        number = max(numbers, default=0) + 1
        while True:  # where locks do not work, two may come here at once: making a folder never gives one to both
            try:
                (home / f"try_{number}").mkdir()
                break
            except FileExistsError:
                number += 1
        place = home / f"try_{number}"
        if step:
            (place / "step").write_text(f"{step.step}\n", encoding="utf-8")
        return place


def claim(place: Path, name: str) -> bool:
    """Take what only one of several supervisors may do. Whether it is ours."""
    try:
        os.close(os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except OSError:
        return False
    return True


def _step_of(place: Path) -> str:
    try:
        return (place / "step").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Alone with the folder; after 20 s, or where the file system has no locks, not alone."""
    try:
        fd = os.open(home / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        yield
        return
    try:
        end = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < end:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        yield
    finally:
        os.close(fd)
