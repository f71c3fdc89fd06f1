"""The diagnosis of a job that failed or stands still: made by a child within its bound, told in a few lines."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...safety.fences import one_line
from . import spawn
from .loop import ENDING, Signals
from .run_folder import Peers, claim, named_paths
from .supervised_job import Job, Voice, Wishes, in_full
from .tree import LIMITS, USED, Tree, content, groups, number_in, read

# ----------
# Where the processes of a job that stands still are, in a few words: the line that a hang is understood by.


MOST, GROUPS = 64, 4  # files that are read; places that are told
_RANK = re.compile(r"rank_(\d+)_")


def standing(record: Path) -> str:
    """Who stands where by the stacks that a record names; the places of few first: they are whom the others wait for.

    Empty where the job does not stand still, or no stack could be read.
    """
    try:
        hang = json.loads(record.read_text(encoding="utf-8")).get("hang") or {}
        files = [] if hang.get("went_on") else [str(name) for name in hang.get("stacks") or []]
    except (OSError, ValueError, AttributeError):
        return ""
    if not files:
        return ""
    from .job_stacks import main_stack  # with a pool of threads, which nothing else of the supervisor needs

    places: dict[str, list[int]] = {}
    for name in files[:MOST]:
        rank = _RANK.search(name)
        try:
            frames = main_stack((record.parent / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if frames:
            places.setdefault(_place(frames), []).append(int(rank[1]) if rank else -1)
    few = sorted(places.items(), key=lambda p: (len(p[1]), p[1]))[:GROUPS]
    return "; ".join(f"{_who(ranks)} in {where}" for where, ranks in few)


def _place(frames: tuple[str, ...]) -> str:
    """The innermost frame, and the line of the user's own program that led there."""
    own = next((f for f in frames if not re.search(r"\((?:torch|multiprocessing|threading|<frozen)", f)), frames[-1])
    return frames[0] if own == frames[0] else f"{frames[0]}, called by {own}"


def _who(ranks: list[int]) -> str:
    known = sorted({r for r in ranks if r >= 0})
    if not known:
        return "a process" if len(ranks) == 1 else f"{len(ranks)} processes"
    shown = ", ".join(map(str, known[:6])) + (f" and {len(known) - 6} more" if len(known) > 6 else "")
    return f"rank {shown}" if len(known) == 1 else f"ranks {shown}"


# ----------
# How much memory a diagnosis may take where its job ran: a scheduler that counts both would kill the job for it.

DIAGNOSIS_BYTES = 200 << 20  # a diagnosis of a small run peaks at 150 MB resident,
LARGE_LOG_BYTES = 150 << 20  # one of a large log at most that much above
OURS_BYTES = 64 << 20  # of the supervisor and its relay, as a scheduler adds up what is resident
_MEGABYTE = 1 << 20


def too_little(environ: Mapping[str, str], pid: int, output: int) -> str:
    """Why there is no room for a diagnosis here; empty where there is, or where nothing limits it.

    Args:
        environ: the job's variables; Slurm names its limits there (megabytes).
        pid: of the job, which may still hold memory.
        output: bytes of the job's output that are kept.
    """
    needed = DIAGNOSIS_BYTES + min(output, LARGE_LOG_BYTES)
    room = [r for r in (_in_groups(), _in_slurm(environ, _held(pid) + OURS_BYTES)) if r is not None]
    if not room or min(room) >= needed:
        return ""
    left = f"{max(min(room), 0) / _MEGABYTE:.0f} MB are left under the job's memory limit"
    return f"{left}, and it takes {needed // _MEGABYTE}"


def _held(pid: int) -> int:
    if read(pid) is None:
        return 0
    tree = Tree(pid)
    tree.scan()
    return sum(process.resident for process in tree.all.values())


def _in_groups() -> int | None:
    """What the control groups leave; cached files give way and do not count."""
    left = []
    for place in groups(os.getpid()):
        limit = next((n for f in LIMITS if (n := number_in(f"{place}/{f}")) is not None), None)
        used = next((n for f in USED if (n := number_in(f"{place}/{f}")) is not None), None)
        if limit is not None and used is not None:
            left.append(limit - used + _cached(place))
    return min(left, default=None)


def _cached(place: str) -> int:
    rows = (line.split() for line in content(f"{place}/memory.stat", 65536).splitlines())
    found = {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}
    return found.get(b"total_inactive_file", found.get(b"inactive_file", 0))


def _in_slurm(environ: Mapping[str, str], others: int) -> int | None:
    node, cpu, cpus = (environ.get(f"SLURM_{name}", "") for name in ("MEM_PER_NODE", "MEM_PER_CPU", "CPUS_ON_NODE"))
    if node.isdigit() and int(node):
        return int(node) * _MEGABYTE - others
    if cpu.isdigit() and int(cpu) and cpus.isdigit():
        return int(cpu) * int(cpus) * _MEGABYTE - others
    return None


# ----------

LONGEST = 64 << 20  # bytes of a report
WIDTH = 160  # characters of a line that is quoted
_PROGRAM = "import sys; from traindoctor.agent.doors.cli import main; raise SystemExit(main(sys.argv[1:]))"
_ERROR = re.compile(
    r"(?:\[[^\]]{1,24}\]:? ?)?(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Exit|Interrupt|Failure)\b ?:"
)
_RAISES = re.compile(r"\braise [A-Za-z_]")
_ADVICE = {
    "restart": "restarting helps",
    "restart_excluding": "restarting helps, without the nodes at fault",
    "fix_first": "repair it first, then restart",
    "stop": "do not restart",
}


@dataclass(slots=True)
class Verdict:
    """What a report says, as far as it is acted on or told."""

    report: Path
    status: str
    cause: str
    title: str
    confidence: float
    advice: str = ""
    lines: list[str] = field(default_factory=list)


class NoReport(Exception):
    """The diagnosis came to no end; the message says why, in words that follow `no diagnosis: `."""


def judge(
    job: Job, record: Path, seconds: float, also: Sequence[str] = (), notify: Sequence[str] = ()
) -> Verdict | None:
    """Diagnose the run, write its reports, tell the verdict on standard error and to those who are to hear of it.

    Args:
        record: of the attempt, already written.
        seconds: bound of the whole diagnosis.
        also: files and folders that the user named; those on the command line of the job are found here.

    Returns:
        The verdict, or None where there is none; why is told, and what to run by hand.
    """
    began = time.monotonic()
    paths = [str(job.run), *named_paths(job.argv, job.run, job.began, also)]
    try:
        if why := too_little(os.environ, job.pid, _size(job.console)):
            raise NoReport(why)
        try:
            report = _triage(job, paths, seconds * 0.6 if len(paths) > 1 else seconds)
        except TimeoutError:
            left = seconds - (time.monotonic() - began)
            if len(paths) == 1 or left < 1:
                raise
            report = _triage(job, paths[:1], left)  # what else was named is too much: the run itself counts
    except (NoReport, TimeoutError, OSError) as e:
        why = f"it took more than {seconds:.0f} s" if isinstance(e, TimeoutError) else str(e)
        _say([f"no diagnosis: {why}", f"by hand: doctor triage {shlex.quote(str(job.run))} --write"])
        return None
    found = verdict_of(report, job.run / "doctor-report.json")
    if where := standing(record):
        found.lines.insert(1, f"it stands still: {where}")
    _say([*found.lines, f"report: {job.run / 'doctor-report.md'} (.html, .json), {time.monotonic() - began:.0f} s"])
    _announce(job, report, notify)
    return found


def verdict_of(report: dict[str, Any], path: Path) -> Verdict:
    """The lines for a tired reader: verdict, first failure, evidence, first repair, whether to restart."""
    cause = _part(report, "root_cause")
    found = Verdict(
        path, str(report.get("status", "")), str(cause.get("id") or ""), str(cause.get("title") or ""),
        float(cause.get("confidence") or 0.0), str(_part(report, "restart").get("advice") or ""),
    )  # fmt: skip
    found.lines = [_headline(found, report), *_first_failure(cause), *_evidence(report)]
    fixes = [f for f in report.get("fixes") or [] if isinstance(f, dict)]
    if fixes and found.status in ("confirmed", "likely", "hypothesis"):
        found.lines.append(f"repair: {fixes[0].get('title', '')}")
        found.lines += [f"    {c}" for c in list(fixes[0].get("commands") or [])[:1]]
    found.lines += _restart(_part(report, "restart"), report.get("runs"))
    return found


NO_KNOWN_FAILURE = "no failure that is known explains how it ended"


def _headline(v: Verdict, report: dict[str, Any]) -> str:
    if v.status == "insufficient_evidence":
        ended = any(": it ended by " in str(s.get("text")) for s in report.get("summary") or [] if isinstance(s, dict))
        return NO_KNOWN_FAILURE if ended else "what the run left does not tell the cause"
    if v.status == "healthy":
        return "nothing wrong is seen in what the run left"
    sure = {"confirmed": "confirmed", "likely": "likely", "hypothesis": "only a hypothesis"}.get(v.status, v.status)
    return f"{sure} ({v.confidence:.0%}): {v.title} [{v.cause}]"


def _first_failure(cause: dict[str, Any]) -> Iterator[str]:
    first = _part(cause, "first_failure")
    words = [
        f"rank {first['rank']}" if first.get("rank") is not None else "",
        f"on {first['host']}" if first.get("host") else "",
        f"at step {first['step']}" if first.get("step") is not None else "",
        f"at {first['time']}" if first.get("time") else "",
    ]
    if any(words[:3]):
        yield "first failure: " + " ".join(w for w in words if w)


def _evidence(report: dict[str, Any], most: int = 3) -> list[str]:
    """Lines that bear the verdict, an error's own line before all others, in place of the code that raised it."""
    found = list(_cited(report))
    errors = [f for f in found if _ERROR.match(f[1])]
    others = [f for f in found if f not in errors and not (errors and _RAISES.search(f[1]))]
    shown = [*errors[: most - 1], *others, *errors[most - 1 :]][:most]
    return [f"    {where}: {text if len(text) <= WIDTH else text[: WIDTH - 2] + '..'}" for where, text in shown]


def _cited(report: dict[str, Any], most: int = 8) -> Iterator[tuple[str, str]]:
    """Place and text of evidence: of the chain of events first, then what its sentences cite."""
    by_id = {e["id"]: e for e in report.get("evidence") or [] if isinstance(e, dict) and "id" in e}
    order = [c.get("evidence") for c in report.get("chain") or [] if c.get("role") in ("cause", "trigger")]
    order += [c.get("evidence") for c in report.get("chain") or []]
    order += [cite for s in report.get("summary") or [] for cite in s.get("cites") or []]
    seen: set[str] = set()
    for one in order:
        e = by_id.get(one)
        text = str(e.get("text") or "").strip() if e else ""
        if not e or not text or text in seen or e.get("kind") == "document":
            continue
        seen.add(text)
        where = f"{e['file']}:{e['line']}" if e.get("file") and e.get("line") else e.get("file") or e.get("tool") or ""
        yield where.removeprefix("r1/"), text  # the run itself; what else was read keeps its mark
        if len(seen) >= most:
            return


def _restart(restart: dict[str, Any], runs: object) -> Iterator[str]:
    advice = _ADVICE.get(str(restart.get("advice") or ""))
    if advice is None:
        return
    nodes = ", ".join(str(n) for n in list(restart.get("exclude") or [])[:8])
    saved = in_full(str(restart.get("from_checkpoint") or ""), runs)
    lost = restart.get("lost_steps")
    from_there = f"; from {saved}" + (f" ({lost} steps are lost)" if lost else "") if saved else ""
    yield f"restart: {advice}" + (f" ({nodes})" if nodes else "") + from_there


def _triage(job: Job, paths: list[str], seconds: float) -> dict[str, Any]:
    """The report as a child makes it. It is ended with all it started at its bound, or when we are told to end.

    Raises:
        NoReport: it failed.
        TimeoutError: it took too long.
    """
    argv = [*spawn.python(), "-c", _PROGRAM, "triage", *paths, "--write", "--json", "--quiet", "--notify", "none"]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=spawn.environ(),
    )
    try:
        if job.rank is not None or _runs(job.pid):
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, 10)
        out, told = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    finally:
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    try:
        report = json.loads(out[:LONGEST])
    except ValueError:
        report = None
    if not isinstance(report, dict):
        last = told.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise NoReport(last[0].removeprefix("doctor: ")[:300])
    return report


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _announce(job: Job, report: dict[str, Any], notify: Sequence[str]) -> None:
    """Tell those who want to hear of it; that this fails never matters to the verdict."""
    try:
        from ...core.report import Report
        from ..notices.announce import tell

        _say(tell(Report.model_validate(report), job.run, notify, job.place.name))
    except Exception as e:  # noqa: BLE001 - people not told must not cost the report, nor the job's exit code
        _say([f"nobody was told: {type(e).__name__}: {e}"])


def _part(whole: dict[str, Any], key: str) -> dict[str, Any]:
    part = whole.get(key)
    return part if isinstance(part, dict) else {}


def _say(lines: Sequence[str]) -> None:
    """Lines on standard error, inert; a reader who does not read costs a second, not the job's end."""
    ending = "\r\n" if _raw() else "\n"
    data = "".join(f"doctor: {one_line(line)}{ending}" for line in lines).encode("utf-8", "replace")
    with contextlib.suppress(OSError, ValueError):
        while data and select.select([], [2], [], 1.0)[1]:
            data = data[os.write(2, data[:4096]) :]


def _raw() -> bool:
    """Whether standard error is a terminal that a running job has in raw mode."""
    import termios

    try:
        return not termios.tcgetattr(2)[1] & termios.OPOST
    except (termios.error, OSError):
        return False


# ----------
# The diagnosis of an attempt, in a child: the loop goes on beside it, and whoever is in a hurry can end it.

_PEERS_SECONDS = 10.0
_SPARE_SECONDS = 15.0  # beyond the bound, which the diagnosis keeps itself


def begin(job: Job, record: Path, wishes: Wishes, taken: Signals) -> int:
    """Fork a child that diagnoses and tells; its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        for number in ENDING:
            signal.signal(number, _end)
        signal.pthread_sigmask(signal.SIG_SETMASK, taken.before)
        from .spawn import lift_limits

        pass

        lift_limits()

        code = 0 if judge(job, record, wishes.seconds, wishes.also, wishes.notify) is not None else 1
    except SystemExit:
        code = 3
    except Exception as e:  # noqa: BLE001 - a failed diagnosis is one line, and the job's exit code wins
        Voice()(f"the diagnosis failed: {type(e).__name__}: {e}")
    finally:
        os._exit(code)


def _end(_number: int, _frame: object) -> None:
    raise SystemExit


def wait(pid: int, wishes: Wishes, taken: Signals, say: Voice) -> tuple[bool, bool]:
    """Wait for a diagnosis: whether it came to a verdict, and whether somebody asked us to end meanwhile."""
    end = time.monotonic() + wishes.seconds + _SPARE_SECONDS
    asked = False
    while True:
        info = taken.take(min(1.0, max(end - time.monotonic(), 0.01)))
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return False, asked
        if done:
            return os.waitstatus_to_exitcode(status) == 0, asked
        if info is not None and info.si_signo in ENDING and info.si_signo not in taken.ignored and not asked:
            asked = True
            say("asked to end: the diagnosis is left unfinished")
            end = min(end, time.monotonic() + 3.0)
            os.kill(pid, signal.SIGTERM)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)


def ours_to_judge(place: Path, peers: Peers | None, taken: Signals) -> bool:
    """Whether we are the one of several supervisors that diagnoses: the first whose rank failed.

    It waits 10 s at most for the others to end, so that the report knows all of them.
    """
    if not peers:
        return True
    if not claim(place, "triage.claim"):
        return False
    end = time.monotonic() + _PEERS_SECONDS
    while time.monotonic() < end and not _all_ended(place, peers):
        info = taken.take(0.2)
        if info is not None and info.si_signo == signal.SIGTERM:
            break
    return True


def _all_ended(place: Path, peers: Peers) -> bool:
    ended = 0
    for record in place.glob("rank_*.json"):
        try:
            ended += '"state": "ended"' in record.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
    return ended >= peers.count


def fresh_report(run: Path, began: float) -> Path | None:
    """The report of an attempt, if one was written since it began (`time.time()`)."""
    report = run / "doctor-report.json"
    try:
        if report.stat().st_mtime >= began:
            return report
    except OSError:
        return None
    return None
