"""Tell people of a verdict or an alarm. It takes milliseconds, never raises, and leaves the sending to `sender.py`."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from . import notice_words
from .delivery import SECONDS

if TYPE_CHECKING:
    from ...core.report import Report


# ----------
# Notices on disk until they are sent: a folder of this user alone, one file a notice, replaced in one step.
#
# A notice is a dict: `made` (seconds since 1970), `subject`, `text`, `report`, and `left`: by the URL of each target
# that it has not reached yet, `{"tries": n, "due": when}`.


MOST = 500  # notices; the oldest give way
KEPT = 24 * 3600.0  # seconds that a notice is tried for
_LARGEST = 1 << 20
LOG_LIMIT = 64 << 10


def spool_folder() -> Path:
    """The folder, made where it is missing.

    Raises:
        OSError: it cannot be made, or another user's folder stands there.
    """
    from ...session.store import usable_state

    folder = usable_state()[0] / "notices"
    folder.mkdir(mode=0o700, exist_ok=True, parents=True)
    info = folder.lstat()
    if info.st_uid != os.getuid() or not folder.is_dir() or folder.is_symlink():
        raise PermissionError(13, "belongs to someone else", str(folder))
    if info.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def put(folder: Path, notice: dict[str, Any]) -> None:
    """Keep a notice to be sent.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    name = f"{time.time_ns():020d}-{token_hex(4)}.json"
    replace(folder / name, notice)
    for path in waiting(folder)[:-MOST]:
        path.unlink(missing_ok=True)


def replace(path: Path, data: Any) -> None:
    """Write JSON whole or not at all, readable for its user alone.

    Raises:
        OSError: it cannot be written; what stood there still stands.
    """
    beside = path.with_name(f".{path.name}.{token_hex(6)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as f:
            json.dump(data, f)
        beside.replace(path)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def waiting(folder: Path) -> list[Path]:
    """Notices that are not sent yet, the oldest first."""
    return sorted(p for p in folder.glob("[0-9]*.json"))


def read(path: Path) -> Any:
    """What a file of the folder holds; None where it is gone, damaged or too large."""
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[bool]:
    """Hold a lock file, waiting at most so long; says whether it is held. It ends with its process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        end = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(0.005)
            else:
                yield True
                return
    finally:
        os.close(fd)


def log(folder: Path, line: str) -> None:
    """A line of `sender.log`, for whoever wonders why nothing came; it never holds a URL."""
    path = folder / "sender.log"
    with suppress(OSError):
        if path.exists() and path.stat().st_size > LOG_LIMIT:
            path.replace(folder / "sender.log.1")
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {line}\n")


# ----------
# One message for one event: many ranks and supervisors say the same, and a job that restarts in a loop says it again.
#
# An event is a cause in a job. Several announcements of it are one where they name the same attempt; where they name
# none, if they stand on files in the same state, or come within `TOGETHER` seconds of each other. Further ones count,
# and are told at the 2nd, 4th, 8th, ... time.

TOGETHER = 60.0  # seconds
FORGOTTEN = 7 * 24 * 3600.0
_MARKS, _EVENTS = 64, 2_000
_LOCK_SECONDS = 1.0
_JOB = ("SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_JOB_ID", "RAY_JOB_ID", "PBS_JOBID", "LSB_JOBID")


def job_of(run: Path) -> str:
    """What stays the same while a job is started again and again: its number, else the folder and name of its runs.

    `doctor-runs/20261122-180000-train` and a later `doctor-runs/20261122-190000-train` are runs of one job.
    """
    numbers = [f"{name}={os.environ[name]}" for name in _JOB if os.environ.get(name)]
    if numbers:
        return " ".join(numbers)
    folder, stamp = run.absolute(), run.name[:15]
    dated = len(stamp) == 15 and stamp[8] == "-" and (stamp[:8] + stamp[9:]).isdigit()
    return str(folder.parent / run.name[16:]) if dated else str(folder)


def state_of(report: Report, run: Path) -> str:
    """What is the same when the same failure is diagnosed twice, by a job's end and a hook, or later by hand.

    The latest attempt of a supervised run; else when the files last changed that the verdict stands on.
    """
    attempts = [p.name[4:] for p in run.glob("doctor-run/try_*") if p.name[4:].isdecimal()]
    if attempts:
        return f"try_{max(map(int, attempts))}"
    roots, newest = [Path(r.root) for r in report.runs] or [run], 0
    for file in {e.file for e in report.evidence if e.file}:
        for root in roots:
            with suppress(OSError, ValueError):
                newest = max(newest, (root / file if root.is_dir() else root).stat().st_mtime_ns)
    return str(newest) if newest else ""


def occurrence(folder: Path, run: Path, event: str, again: str = "", state: str = "") -> tuple[int, float] | None:
    """Count an event. None where it was told already or needs no message now.

    Args:
        folder: the spool, where events of this user on this machine are counted.
        run: its folder; where it holds `doctor-run`, supervisors on other machines are told apart there.
        event: what happened, as a cause or the kind of an alarm.
        again: names the attempt, where the caller knows; another attempt is another time.
        state: from `state_of`, where it does not.

    Returns:
        How many times by now, and when the first was (seconds since 1970).
    """
    if not again and state.startswith("try_"):
        again = state
    mark = again or state
    key = hashlib.sha256(f"{job_of(run)}\0{event}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
    now = time.time()
    with locked(folder / "events.lock", _LOCK_SECONDS) as held:
        if not held:
            return 1, now  # rather twice than never
        events = _events(folder, now)
        known = events.setdefault(key, {"first": now, "last": 0.0, "count": 0, "marks": []})
        close = not again and abs(now - known["last"]) < TOGETHER
        if close or mark in known["marks"] or not _first_of_all_machines(run, event, again, now):
            return None
        known["count"] += 1
        known["last"] = now
        known["marks"] = [*known["marks"], mark][-_MARKS:] if mark else known["marks"]
        with suppress(OSError):
            replace(folder / "events.data", events)
    count = known["count"]
    return (count, known["first"]) if count & (count - 1) == 0 else None


def _events(folder: Path, now: float) -> dict[str, Any]:
    """What is known, without what is long over or damaged."""
    data = read(folder / "events.data")
    if not isinstance(data, dict):
        return {}
    sound = {
        key: e for key, e in data.items()
        if isinstance(e, dict) and isinstance(e.get("marks"), list) and isinstance(e.get("count"), int)
        and all(isinstance(e.get(k), int | float) for k in ("first", "last")) and now - e["last"] < FORGOTTEN
    }  # fmt: skip
    newest = sorted(sound, key=lambda key: sound[key]["last"])[-_EVENTS:]
    return {key: sound[key] for key in newest}


def _first_of_all_machines(run: Path, event: str, again: str, now: float) -> bool:
    """Whether no other machine has told it: an empty file in the run's folder, which they share, is who was first."""
    folder = run / "doctor-run"
    if not folder.is_dir():
        return True
    key = hashlib.sha256(event.encode("utf-8", "surrogatepass")).hexdigest()
    span = int(now // TOGETHER)
    marks = [hashlib.sha256(again.encode()).hexdigest()[:8]] if again else [str(span), str(span - 1)]
    names = [folder / f".told-{key[:12]}-{mark}" for mark in marks]
    if any(name.exists() for name in names[1:]):
        return False
    try:
        os.close(os.open(names[0], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


# ----------

SCHEMA = "traindoctor.notice/1"
SENDER = "DOCTOR_NOTICE_SENDER"  # set in the environment of the sender, which outlives whoever started it
LAST_SECONDS = 10.0  # that `tell` waits where everything ends with the job
SECRETS = ("DOCTOR_NOTIFY", "DOCTOR_NOTIFY_FILE", "DOCTOR_SERVE_TOKEN")  # variables that no child needs
_ENDED_WITH = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "KUBERNETES_SERVICE_HOST")
_STARTED: list[subprocess.Popen[bytes]] = []


def tell(report: Report, run: Path, flags: Sequence[str] = (), again: str = "") -> list[str]:
    """Send a verdict to whom it may concern (`targets.whom`), as every command does. Never raises.

    Where a scheduler or a container ends all processes with the job, it waits until the notices are out, for
    `LAST_SECONDS` at most.

    Returns:
        What went wrong, in lines for the user.
    """
    from .delivery import whom

    urls, wrong = whom(flags)
    if (why := announce(report, run, urls, again)) or not urls:
        return [line for line in (wrong, why) if line]
    if _ends_with_the_job() and not delivered(LAST_SECONDS):
        wrong = wrong or "notices: not sent yet; what waits goes out when doctor next sends something"
    return [wrong] if wrong else []


def announce(report: Report, run: Path, urls: Sequence[str], again: str = "") -> str:
    """Send a verdict to the targets, once for each event, in the background.

    Args:
        run: the folder of the run, where its report lies.
        urls: from `targets`; without any nothing is kept and nothing is sent.
        again: names the attempt of a job that is started again, as in `try_3`; without it, the latest attempt in the
            folder, or the state of the files that the verdict stands on, tells one failure from the next.

    Returns:
        Why nothing will be sent, in one line; else nothing. What goes wrong later stands in `notices/sender.log`.
    """
    if not urls:
        return ""
    event = report.root_cause.id or report.status
    return _told(lambda: notice_words.of_report(report, run), run, event, urls, lambda: (again, state_of(report, run)))


def announce_alarm(alarm: dict[str, Any], run: str, urls: Sequence[str]) -> str:
    """Send an alarm of a live run to the targets, likewise. The same kind at the same rank is one event."""
    if not urls:
        return ""
    kind = next((str(alarm[k]) for k in ("kind", "cause", "key") if alarm.get(k)), "alarm")
    event = f"alarm {kind} {alarm.get('rank')}"
    return _told(lambda: notice_words.of_alarm(alarm, run), Path(run), event, urls, lambda: ("", ""))


def send_again() -> None:
    """Start sending what an earlier sender left, as one that ended with its job. At once, and silent."""
    with suppress(OSError):
        folder = spool_folder()
        if waiting(folder):
            _start_sender(folder)


def delivered(seconds: float) -> bool:
    """Wait for the notices to be sent, so long at most; says whether they are."""
    end = time.monotonic() + seconds
    with suppress(OSError):
        folder = spool_folder()
        while waiting(folder):
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
    return True


def _ends_with_the_job() -> bool:
    """Whether the machine takes every process down when the job ends."""
    marks = ("/.dockerenv", "/run/.containerenv")
    return any(os.environ.get(name) for name in _ENDED_WITH) or any(Path(mark).exists() for mark in marks)


def _told(
    make: Callable[[], dict[str, Any]], run: Path, event: str, urls: Sequence[str], mark: Callable[[], tuple[str, str]]
) -> str:
    try:
        folder = spool_folder()
        if (counted := occurrence(folder, run, event, *mark())) is None:
            return ""
        count, first = counted
        left = {url: {"tries": 0, "due": 0.0} for url in urls}
        since = time.strftime("%H:%M", time.localtime(first))
        said = {"facts": make(), "count": count, "since": since, "left": left}
        put(folder, {"schema": SCHEMA, "made": time.time(), **said})
        _start_sender(folder)
    except OSError as e:
        return f"notices: {e.strerror or 'cannot be kept'}"
    except Exception as e:  # noqa: BLE001 - a notice may not cost the job whose end it tells
        return f"notices: {type(e).__name__} (a fault of doctor's)"
    return ""


def _start_sender(folder: Path) -> None:
    """A process of its own session, that a signal to the job does not reach; it ends at once if one is at work."""
    _STARTED[:] = [p for p in _STARTED if p.poll() is None]
    kept = {k: v for k, v in os.environ.items() if k not in (*SECRETS, "LD_PRELOAD")}
    argv = [sys.executable, "-P", "-m", "traindoctor.agent.jobs.notices.sender", str(folder)]
    nowhere = subprocess.DEVNULL
    started = subprocess.Popen(
        argv, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True, cwd="/", env=kept | {SENDER: "1"}
    )
    _STARTED.append(started)


# ----------
# A message to each target at once, for whoever sets them up.


def tried(urls: Sequence[str]) -> list[str]:
    """Send each a test message, in a child as always. Returns what went wrong with each; nothing where it arrived."""
    if not urls:
        return []
    limit = 20.0 + SECONDS * len(urls)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "traindoctor.agent.jobs.notices.sender", "--test"],
            input=json.dumps(list(urls)), capture_output=True, text=True, timeout=limit, check=False, cwd="/",
        )  # fmt: skip
        answers = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return ["the sender failed (a fault of doctor's)"] * len(urls)
    return [str(a) for a in answers]
