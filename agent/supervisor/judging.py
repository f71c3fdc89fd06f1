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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..sanitize import one_line
from . import children
from .again import in_full
from .allowance import too_little
from .job import Job
from .named import named_paths
from .standing import standing

LONGEST = 64 << 20  # bytes of a report
WIDTH = 160  # characters of a line that is quoted
_PROGRAM = "import sys; from traindoctor.agent.cli import main; raise SystemExit(main(sys.argv[1:]))"
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
    found.lines = [_headline(found), *_first_failure(cause), *_evidence(report)]
    fixes = [f for f in report.get("fixes") or [] if isinstance(f, dict)]
    if fixes and found.status in ("confirmed", "likely", "hypothesis"):
        found.lines.append(f"repair: {fixes[0].get('title', '')}")
        found.lines += [f"    {c}" for c in list(fixes[0].get("commands") or [])[:1]]
    found.lines += _restart(_part(report, "restart"), report.get("runs"))
    return found


def _headline(v: Verdict) -> str:
    if v.status == "insufficient_evidence":
        return "what the run left does not tell the cause"
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
    argv = [*children.python(), "-c", _PROGRAM, "triage", *paths, "--write", "--json", "--quiet", "--notify", "none"]
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=children.environ(),
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
        from ..notices.announce import tell
        from ..report import Report

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
