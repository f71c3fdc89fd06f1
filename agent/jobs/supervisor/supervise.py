"""A supervised run from its first attempt to its last: `supervise` is the door of this folder."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ...core.errors import DoctorError, UsageError
from . import judging, relay, run_folder, spawn, supervised_job
from .loop import Ending, Loop, Observer, Signals
from .run_folder import Record
from .supervised_job import HOLE, Job, Voice, Wishes

# ----------
# Targets of notices, tried before a job runs for days: in a child, so that the supervisor stays small.


LONGEST = 2000  # bytes of a line that refuses


def tried(wishes: Wishes, given: Mapping[str, str], say: Voice) -> None:
    """Try what `--notify` names and wait for that; what the environment names is tried beside the job, and told.

    What an earlier job left unsent is sent meanwhile.

    Raises:
        UsageError: nothing can be sent to one that the command line names.
    """
    if not wishes.triage or not (wishes.notify or given.get("DOCTOR_NOTIFY") or given.get("DOCTOR_NOTIFY_FILE")):
        return
    hears, says = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(hears)
            wrong = _wrong(wishes)
            if wrong and not wishes.notify:
                say(" - ".join(wrong))
            os.write(says, "\n".join(wrong).encode("utf-8", "replace")[:LONGEST])
        finally:
            os._exit(0)
    os.close(says)
    try:
        if wishes.notify and (told := os.read(hears, LONGEST)):
            os.waitpid(pid, 0)
            what, _, hint = told.decode("utf-8", "replace").partition("\n")
            raise UsageError(what, hint)
    finally:
        os.close(hears)


def _wrong(wishes: Wishes) -> list[str]:
    try:
        from ..notices.announce import send_again
        from ..notices.delivery import checked

        checked(wishes.notify)
        send_again()
    except DoctorError as e:
        return [e.message, e.hint]
    except Exception as e:  # noqa: BLE001 - that a check fails must not cost a job
        return [] if wishes.notify else [f"notices: {type(e).__name__}"]
    return []


# ----------

_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


@dataclass
class _Run:
    """What stays the same over the attempts of a run."""

    path: Path
    wishes: Wishes
    say: Voice
    taken: Signals
    closed: list[int]
    given: dict[str, str]
    peers: run_folder.Peers | None


def supervise(argv: Sequence[str], wishes: Wishes) -> int:
    """Run a command as if it had been started without us; its exit code, 128 + n where signal n ended it.

    Raises:
        NotStarted: there is no such command (127), or it cannot be executed (126).
    """
    closed = spawn.reserve_places()
    say = Voice(wishes.quiet, silent=2 in closed)
    given = spawn.environment()
    file = spawn.find(argv[0], given)
    step = run_folder.peers(given)
    tried(wishes, given, say)
    path, line = run_folder.run_folder(wishes.run, argv, step)
    if line:
        say(line)
    if path is None:
        _become(file, argv, given, closed)
    taken = Signals()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    run = _Run(path, wishes, say, taken, closed, given, step)
    if step and wishes.restart:
        say("--restart is left out: each rank has a doctor of its own here, and none can start the others again")
    ending = _attempts(run, file, list(argv))
    taken.release()
    if ending.number == signal.SIGINT and ending.by_key:
        # Shells end a script only if its command died of the Ctrl-C that they got as well.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return ending.code


def _become(file: str, argv: Sequence[str], given: dict[str, str], closed: list[int]) -> NoReturn:
    """Nothing can be kept anywhere: the job runs all the same, in our place."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    for place in closed:
        os.close(place)
    os.execve(file, list(argv), given)


def _attempts(run: _Run, file: str, argv: list[str]) -> Ending:
    left, first, extra = run.wishes.restart if not run.peers else 0, True, {}
    now = argv
    if left and any(HOLE in word for word in argv):
        run.say(f"{HOLE} is empty at the first start")
        now = [word.replace(HOLE, "") for word in argv]
    while True:
        ending, job, record = _attempt(run, file, now, extra, first)
        first = False
        if ending.code == 0 and not ending.hung:
            return ending
        found, asked = (True, False) if ending.judged else _judged(run, job, record, ending)
        if not left or ending.code == 0 or asked or ending.told:
            return ending
        start = _next(run, job, argv, left, extra.get("DOCTOR_EXCLUDE", "")) if found else None
        if start is None:
            return ending
        now, more = start
        extra |= more
        file, left = spawn.find(now[0], run.given), left - 1


def _attempt(run: _Run, file: str, argv: list[str], extra: dict[str, str], first: bool) -> tuple[Ending, Job, Record]:
    """Start the command once and wait for its end."""
    place = run_folder.attempt_folder(run.path, run.peers)
    launcher = supervised_job.launcher(argv)
    rank = run.peers.index if run.peers and not launcher else None
    out = spawn.outlets(run.closed)
    known = supervised_job.Surroundings(
        launcher, place, any(s.terminal for s in out.streams), _reached(run, launcher),
        supervised_job.old_torch(file, run.given), supervised_job.own_logs(argv), run.peers is not None,
    )  # fmt: skip
    added, left = supervised_job.additions(known, run.given, run.wishes.leave)
    environ = {**run.given, **added, **extra, "DOCTOR_RUN": str(run.path)}
    for sub in ("flight", "ranks"):
        if any(str(place / sub) in value for value in added.values()):
            with contextlib.suppress(OSError):
                (place / sub).mkdir(exist_ok=True)
    index = f"_{run.peers.index}" if run.peers else ""
    console = place / (f"{'node' if launcher else 'rank'}{index}.log" if run.peers else "console.log")
    name = f"rank{index}.json" if run.peers else "record.json"
    record = Record(place / name, argv, int(place.name[4:]), rank)
    record.facts |= {"set": added, "left_as_it_was": left}
    if job := run.given.get("SLURM_JOB_ID"):
        record.facts["slurm_job"] = job
    if first and (not run.peers or run.peers.index == 0):
        run.say.aside(f"keeps this run in {run.path}" + (f"; set {' '.join(added)}" if added else ""))
    passing = relay.start(
        out.streams, console, out.terminal.keyboard if out.terminal else -1,
        out.terminal.master if out.terminal else -1, out.terminal.calm if out.terminal else None,
    )  # fmt: skip
    began = time.time()
    try:
        pid = spawn.spawn(file, argv, environ, out, run.taken.before)
    except spawn.NotStarted:
        passing.close()
        _forget(place, run.path)
        raise
    out.release()
    record.write({"pid": pid})
    _keep_command(place, argv)
    job = Job(argv, run.path, place, pid, began, console, rank, run.wishes.hang_after, added)
    loop = Loop(
        job, passing, out.terminal, run.taken, record, run.say, _observer(job, run), _on_hang(run, job, record),
        run.wishes.seconds + 1.0 if run.wishes.kill_on_hang else 0.0,
    )  # fmt: skip
    ending = loop.until_the_end()
    if loop.child > 0:
        judging.wait(loop.child, run.wishes, run.taken, run.say)
    return ending, job, record


def _reached(run: _Run, launcher: str) -> bool:
    if launcher not in ("srun", "launcher"):
        return True
    return run.given.get("SLURM_JOB_NUM_NODES") == "1" or supervised_job.is_shared(run.path)


def _observer(job: Job, run: _Run) -> Observer | None:
    try:
        from .watcher import Watcher

        return Watcher(job, run.say)
    except Exception as e:  # noqa: BLE001 - the job runs, watched or not
        run.say(f"the job runs unwatched: {type(e).__name__}: {e}")
        return None


def _on_hang(run: _Run, job: Job, record: Record) -> Callable[[], int]:
    def begin() -> int:
        if not run.wishes.triage:
            return 0
        if run.peers and not run_folder.claim(job.place, "hang.claim"):
            return -1
        return judging.begin(job, record.path, run.wishes, run.taken)

    return begin


def _judged(run: _Run, job: Job, record: Record, ending: Ending) -> tuple[bool, bool]:
    """Diagnose an attempt that failed: whether there is a verdict, and whether somebody asked us to end meanwhile."""
    try:
        if not run.wishes.triage or (ending.by_key and not ending.hung):
            return False, False
        if not judging.ours_to_judge(job.place, run.peers, run.taken):
            return False, False
        return judging.wait(judging.begin(job, record.path, run.wishes, run.taken), run.wishes, run.taken, run.say)
    except Exception as e:  # noqa: BLE001 - the exit code of the job wins
        run.say(f"the diagnosis failed: {type(e).__name__}: {e}")
        return False, False


def _next(run: _Run, job: Job, argv: list[str], left: int, left_out: str) -> tuple[list[str], dict[str, Any]] | None:
    """The next attempt, if the report advises one."""
    try:
        from .supervised_job import Stop, next_start

        if (report := judging.fresh_report(run.path, job.began)) is None:
            run.say("not started again: there is no report of this attempt")
            return None
        step = next_start(report, argv, run.wishes.resume, left, run.taken.calm_for, run.say, left_out)
        if isinstance(step, Stop):
            run.say(f"not started again: {step.why}")
            return None
        return list(step.argv), dict(step.environ)
    except Exception as e:  # noqa: BLE001 - the exit code of the job wins
        run.say(f"not started again: {type(e).__name__}: {e}")
        return None


def _keep_command(place: Path, argv: list[str]) -> None:
    """The command as a shell takes it: a report can cite its flags with a line."""
    with contextlib.suppress(OSError, UnicodeError):
        (place / "command.sh").write_text(f"{shlex.join(argv)}\n", encoding="utf-8")


def _forget(place: Path, run: Path) -> None:
    """Take away the folders of an attempt that never began; those that hold anything stay."""
    for path in (place / "flight", place / "ranks", place):
        with contextlib.suppress(OSError):
            path.rmdir()
    with contextlib.suppress(OSError):
        (place / "console.log").unlink()
        place.rmdir()
