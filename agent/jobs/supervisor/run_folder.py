"""The folder of a run and of each attempt in it; several supervisors of one job step share an attempt."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...core.own_files import state_folder
from ...safety.fences import one_line

# ----------
# What is known of an attempt, on disk at every moment: a supervisor that is killed leaves what it knew.


SCHEMA = "traindoctor.run/1"


class Record:
    """The record of one attempt, written whole each time; that it cannot be written never matters to the job."""

    def __init__(self, path: Path, argv: Sequence[str], attempt: int, rank: int | None) -> None:
        self.path = path
        self._since = time.monotonic()
        self.facts: dict[str, Any] = {
            "schema": SCHEMA, "command": list(argv), "cwd": working_folder(), "host": host_name(), "rank": rank,
            "attempt": attempt, "began": datetime.now(UTC).isoformat(timespec="milliseconds"), "ended": None,
            "seconds": 0.0, "state": "running", "pid": None, "supervisor": os.getpid(), "exit": None,
            "told_to_end": [], "set": {}, "left_as_it_was": [], "died": [], "hang": None, "notes": [],
        }  # fmt: skip

    def note(self, line: str) -> None:
        """Keep a line for whoever reads the record."""
        if line not in self.facts["notes"]:
            self.facts["notes"].append(line)

    def end(self, code: int, number: int) -> None:
        """The job ended: what a shell would see, and the signal it died of (0: none)."""
        import signal

        self.facts["ended"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.facts["state"] = "ended"
        name = signal.Signals(number).name if number in signal.valid_signals() and number < 32 else f"SIG{number}"
        self.facts["exit"] = {"code": code, "signal": name if number else None}

    def write(self, more: Mapping[str, Any] | None = None) -> bool:
        """Write it, with `more` taken in; whether the disk took it."""
        self.facts.update(more or {})
        self.facts["seconds"] = round(time.monotonic() - self._since, 3)
        beside = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            text = json.dumps(self.facts, indent=1, ensure_ascii=True, default=str)
            beside.write_text(text + "\n", encoding="utf-8")
            beside.replace(self.path)
        except (OSError, ValueError, TypeError):
            _forget(beside)
            return False
        return True


def host_name() -> str:
    """The name of this host."""
    return os.uname().nodename


def working_folder() -> str:
    """The current folder; empty where it was removed under us."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _forget(path: Path) -> None:
    try:
        path.unlink()
    except OSError:
        return


# ----------

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


# ----------
# Files and folders that a job's command line names and that tell something of the run: script, settings, outputs.

MOST = 12  # paths that are given to a diagnosis
ENTRIES, SECONDS = 4000, 1.0  # a larger tree, or one that takes longer to list, is left out
LARGEST = 4 << 20  # bytes of a file of settings or code
_READ = {".py", ".sh", ".bash", ".sbatch", ".slurm", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf"}
_FOLDER = re.compile(
    r"(?:^|[-_.])(?:out(?:put)?s?|saves?|log(?:s|ging|dir)?|ckpts?|checkpoints?|config|run|work|exp|tensorboard)"
    r"(?:[-_.]?(?:dir|directory|folder|path|root))?$"
)


def named_paths(argv: Sequence[str], run: Path, began: float, also: Sequence[str] = ()) -> list[str]:
    """What to read beside the folder of the run, the user's own wishes first; nothing twice.

    A folder counts where its option says so and something in it was written since the job began (`began`,
    `time.time()`): what an earlier job left there is no evidence of this one.
    """
    found: dict[str, None] = {}
    places = [run.resolve()]
    wanted = [(Path(p), True) for p in also] + [(p, False) for p in _named(argv, began)]
    for path, asked in wanted:
        try:
            real = path.expanduser().resolve()
            inside = any(real == p or p in real.parents for p in places)
            around = not asked and real.is_dir() and any(real in p.parents for p in places)
        except OSError:
            continue
        if inside or around or real == Path("/") or real == Path.home() or not real.exists() or len(found) >= MOST:
            continue
        found[str(real)] = None
        places.append(real)
    return list(found)


def _named(argv: Sequence[str], began: float) -> Iterator[Path]:
    option = ""
    for word in argv[1:]:
        if word.startswith("-") and "=" not in word:
            option = word.lstrip("-")
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if equals:
            option = name.rpartition(".")[2]
        else:
            value = word
        if not value or "\0" in value or len(value) > 4096:
            continue
        path = Path(value.removeprefix("@"))
        try:
            if path.suffix.lower() in _READ and path.is_file():
                if path.stat().st_size <= LARGEST:
                    yield path
            elif _FOLDER.search(option.lower()) and path.is_dir() and _written(path, began):
                yield path
        except OSError:
            continue
        option = ""


def _written(folder: Path, began: float) -> bool:
    """Whether something in it was written since the job began; false of a tree too large to be read in time."""
    new, entries, until = False, 0, time.monotonic() + SECONDS
    for here, _, names in os.walk(folder):
        entries += len(names) + 1
        if entries > ENTRIES or time.monotonic() > until:
            return False
        for name in names:
            try:
                new = new or Path(here, name).stat().st_mtime >= began - 2
            except OSError:
                continue
    return new
