"""`doctor run`: a job as it would run without doctor, and a report if it fails."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from ...core.errors import UsageError
from ...safety.fences import one_line
from . import diagnosis_options
from .diagnosis_options import Json
from .output import print_line

if TYPE_CHECKING:
    from ...jobs.watching.alarm import Alarm
    from ...jobs.watching.following import Diagnosis, Endpoint, Following


class OnHang(StrEnum):
    """What is done about a job that stands still."""

    REPORT = "report"
    KILL = "kill"


def run(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments.", metavar="[--] COMMAND...")],
    folder: Annotated[
        str,
        typer.Option("--run", help="Folder of the run.", metavar="DIR", show_default="doctor-runs/TIME-NAME"),
    ] = "",
    restart: Annotated[
        int, typer.Option(help="Start again up to N times, where the report advises it.", metavar="N", min=0)
    ] = 0,
    resume: Annotated[
        str, typer.Option(help="Arguments added to a restart; {checkpoint} is filled in.", metavar="ARGS")
    ] = "",
    hang_after: Annotated[
        float, typer.Option(help="Seconds without a step before a job counts as hung; 0: never.", min=0)
    ] = 600.0,
    on_hang: Annotated[OnHang, typer.Option(help="What to do about a hang.")] = OnHang.REPORT,
    no_triage: Annotated[bool, typer.Option("--no-triage", help="Make no report.")] = False,
    leave: Annotated[
        list[str] | None, typer.Option(help="Variable that is not to be set, or all; again for more.", metavar="NAME")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing but the verdict.")] = False,
    notify: Annotated[
        list[str] | None,
        typer.Option(help="Where to send a short notice; again for more, 'none': nowhere.", metavar="URL"),
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long the report may take.", min=1)] = 60.0,
    also: Annotated[
        list[str] | None, typer.Option(help="Folder or file that the report reads too; again.", metavar="PATH")
    ] = None,
) -> NoReturn:
    """Run a training command, and explain it if it fails or hangs.

    The exit code, signals, streams and terminal are those of the command; 128 + n if signal n ended it.
    """
    from ...jobs.supervisor.supervise import supervise
    from ...jobs.supervisor.supervised_job import Wishes

    if not command:
        raise UsageError("no command to run", "doctor run -- torchrun train.py")
    if notify:
        from ...jobs.notices.delivery import check_form

        check_form([("--notify", url) for url in notify])
    wishes = Wishes(
        folder, restart, resume, hang_after, on_hang is OnHang.KILL, not no_triage, leave or [], quiet, notify or [],
        seconds, also or [],
    )  # fmt: skip
    # Past what the command line does at an end of its own: it tells of interrupts, and flushes a stdout that may be
    # closed.
    sys.exit(supervise(command, wishes))


# ----------
# `doctor watch`: a live run followed through its files; each alarm once, as a line for people or for programs.

_BEAT = 0.2  # seconds between two looks for alarms and signals
_LINGER, _SETTLED = 600.0, 5.0  # seconds after the end of a run; the second with --until-end
_PATIENCE = 600.0
_NOTHING = 3  # exit code


def watch(
    path: Annotated[
        list[str] | None, typer.Argument(help="Folder or file of the run.", show_default="this folder", metavar="DIR")
    ] = None,
    json: Json = False,
    once: Annotated[bool, typer.Option("--once", help="Tell what has come so far, then end.")] = False,
    until_end: Annotated[bool, typer.Option("--until-end", help="End as soon as the run has ended.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1, max=3600)] = 1.0,
    stall: Annotated[float, typer.Option(help="Seconds without a step that are never told.", min=1)] = 300.0,
    patience: Annotated[
        float | None, typer.Option(help="Seconds to wait for something to follow.", min=0, show_default="600")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Tell this kind alone; again for more.", metavar="KIND")
    ] = None,
    skip: Annotated[
        list[str] | None, typer.Option(help="Never tell this kind; again for more.", metavar="KIND")
    ] = None,
    pid: Annotated[
        list[int] | None, typer.Option(help="A process of the run on this machine.", metavar="PID", min=1)
    ] = None,
    exit_on: Annotated[
        list[str] | None,
        typer.Option("--exit-on", help="End at the first alarm, or at this kind.", metavar="alarm|KIND"),
    ] = None,
    diagnose: Annotated[bool, typer.Option("--diagnose", help="Diagnose the run when an alarm comes.")] = False,
    notify: Annotated[
        list[str] | None, typer.Option("--notify", help="Send alarms there; again for more.", metavar="URL")
    ] = None,
    prometheus: Annotated[
        int | None, typer.Option("--prometheus", help="Serve /metrics on this port of 127.0.0.1.", min=0, max=65535)
    ] = None,
) -> int:
    """Follow a live run and raise the alarm: NaN, spike, stall, straggler, disk, checkpoints and more, once each."""
    from ...jobs.watching.following import Following, runs_of

    kinds, ends = _kinds(only, skip), _ends(exit_on)
    waits = patience if patience is not None else 0.0 if once else _PATIENCE
    runs = runs_of([Path(p) for p in path or ["."]], kinds, stall, tuple(pid or ()))
    following = Following(runs, every, once, _SETTLED if until_end else _LINGER, waits)
    show = _Show(following, json, ends, urls=_targets(notify), named=len(runs) > 1)
    show.serve(prometheus)
    return show.follow(diagnose)


@dataclass(slots=True)
class _Show:
    """Tells what comes, and ends when it is time."""

    following: Following
    json: bool
    ends: frozenset[str]
    urls: list[str] = field(default_factory=list)
    named: bool = False
    code: int | None = None
    _told: set[str] = field(default_factory=set)
    _verdicts: list[Alarm] = field(default_factory=list)
    _diagnosis: Diagnosis | None = None
    _endpoint: Endpoint | None = None
    _signal: int = 0

    def serve(self, port: int | None) -> None:
        """The text for Prometheus, where it is asked for."""
        if port is None:
            return
        from ...jobs.watching.following import Endpoint, exposed

        try:
            self._endpoint = Endpoint(port, lambda: exposed(self.following.states(), self.following.counts))
        except OSError as e:
            raise UsageError(f"port {port} cannot be served: {e.strerror}", "name another with --prometheus") from None
        _note(f"metrics on http://127.0.0.1:{self._endpoint.port}/metrics")

    def follow(self, diagnose: bool) -> int:
        """Until the end; the exit code."""
        if diagnose:
            from ...jobs.watching.following import Diagnosis

            self._diagnosis = Diagnosis(self._verdicts.append)
        before = {s: signal.signal(s, self._heard) for s in (signal.SIGTERM, signal.SIGINT)}
        self.following.start()
        try:
            while not self._signal and self.code is None and not self.following.done:
                self._tell_all()
            if not self._signal and self._diagnosis is not None:
                self._diagnosis.wait()
            self._tell_all()
        finally:
            self.following.stop()
            if self._diagnosis is not None:
                self._diagnosis.stop()
            if self._endpoint is not None:
                self._endpoint.close()
            for number, action in before.items():
                signal.signal(number, action)
        return self._ended()

    def _heard(self, number: int, _frame: object) -> None:
        self._signal = number

    def _tell_all(self) -> None:
        for alarm in self.following.alarms(_BEAT):
            self._tell(alarm)
        while self._verdicts:
            self._tell(self._verdicts.pop(0))

    def _tell(self, alarm: Alarm) -> None:
        from ...jobs.watching.alarm import advice_of, json_of, line_of

        print_line(json_of(alarm) if self.json else line_of(alarm, self.named))
        if not self.json and alarm.severity == "alarm" and alarm.kind not in self._told:
            self._told.add(alarm.kind)
            print_line(advice_of(alarm))
        sys.stdout.flush()
        if alarm.severity != "alarm" or (alarm.earlier and not self.following.once):
            return
        if self.urls:
            self._announce(alarm.plain(), alarm.run)
        if self._diagnosis is not None:
            self._diagnosis.begin(alarm)
        if self.ends & {"alarm", alarm.kind}:
            self.code = 1

    def _announce(self, alarm: dict[str, Any], run: str) -> None:
        from ...jobs.notices.announce import announce_alarm

        if why := announce_alarm(alarm, run, self.urls):
            _note(why)

    def _ended(self) -> int:
        from ...jobs.watching.alarm import summary_of

        if self._signal == signal.SIGINT:
            _note(summary_of(self.following.counts))
            return 130
        if not self.following.followed and not self.following.counts and not self._signal:
            _note("nothing to follow: no log and no metrics there")
            return _NOTHING
        _note(summary_of(self.following.counts))
        return int(any(severity == "alarm" for _, severity in self.following.counts))


def _note(text: str) -> None:
    sys.stderr.write(f"doctor: {one_line(text)}\n")
    sys.stderr.flush()


def _kinds(only: list[str] | None, skip: list[str] | None) -> frozenset[str]:
    from ...jobs.watching.alarm import KINDS

    return frozenset(_known(only, "--only") or KINDS) - _known(skip, "--skip")


def _ends(exit_on: list[str] | None) -> frozenset[str]:
    return _known([k for k in exit_on or [] if k != "alarm"], "--exit-on") | (
        {"alarm"} if "alarm" in (exit_on or []) else set()
    )


def _known(names: list[str] | None, option: str) -> frozenset[str]:
    from ...jobs.watching.alarm import KINDS

    for name in names or []:
        if name not in KINDS:
            raise UsageError(f"{option}: there is no kind {one_line(name)!r}", f"one of {', '.join(KINDS)}")
    return frozenset(names or ())


def _targets(flags: list[str] | None) -> list[str]:
    from ...jobs.notices.delivery import checked

    return checked(flags or ())


# ----------
# `doctor serve`: a server on loopback that has the runs diagnosed that alerts name.


def serve(
    alertmanager: Annotated[
        bool, typer.Option("--alertmanager", help="Take webhooks of Prometheus Alertmanager.")
    ] = False,
    port: Annotated[int, typer.Option(help="Port to listen on; 0: any free one.", min=0, max=65535)] = 9099,
    host: Annotated[str, typer.Option(help="127.0.0.1 or ::1; nothing else is served.")] = "127.0.0.1",
    root: Annotated[
        list[Path] | None, typer.Option("--root", help="Runs below this folder may be named; again for more.")
    ] = None,
    slurm: Annotated[bool, typer.Option("--slurm", help="Jobs of Slurm may be named too.")] = False,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            help="Label or annotation that holds run_dir or slurm_job_id.",
            metavar="run_dir=LABEL",
            show_default="the same names",
        ),
    ] = None,
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="Send verdicts there (docs/notices.md); again for more.", metavar="URL"),
    ] = None,
    json: diagnosis_options.Json = False,
) -> None:
    """Hear alerts on loopback and triage the run that each names, once. DOCTOR_SERVE_TOKEN: who knows it may talk."""
    from ...core.config import settle
    from ...core.errors import UsageError

    if not alertmanager:
        raise UsageError("there is nothing to serve", "doctor serve --alertmanager takes webhooks of Alertmanager")
    if host not in ("127.0.0.1", "::1", "localhost"):
        raise UsageError("only 127.0.0.1 and ::1 are served", "a proxy with TLS can stand in front")
    settle()
    if not root and not slurm:
        raise UsageError("no alert may name a run yet", "--root DIR names the folder that runs lie below")
    import asyncio

    from ...jobs.notices.announce import send_again
    from ...jobs.notices.delivery import checked
    from ...session.store import usable_state
    from ..serving.alert_server import Listening
    from ..serving.alert_server import serve as serve_alerts
    from ..serving.alerts import Heard, Places

    places = Places([_folder(r) for r in root or []], slurm, _map(names or []))
    urls = checked(notify or [])
    heard = Heard(usable_state()[0] / "serving")
    token = os.environ.get("DOCTOR_SERVE_TOKEN", "")
    send_again()
    where = Listening("127.0.0.1" if host == "localhost" else host, port, token)
    try:
        asyncio.run(serve_alerts(places, heard, where, _tell_json if json else _tell, urls))
    finally:
        heard.close()


def _folder(named: Path) -> Path:
    from ...core.errors import UsageError
    from ...safety.fences import one_line

    path = named.expanduser()
    if not path.is_dir():
        raise UsageError(f"no such folder: {one_line(str(path))}", "--root names a folder that runs lie below")
    return path.resolve()


def _map(pairs: list[str]) -> dict[str, str]:
    from ...core.errors import UsageError
    from ...safety.fences import one_line
    from ..serving.alerts import FIELDS

    found = {}
    for pair in pairs:
        field, _, label = pair.partition("=")
        if field not in FIELDS or not label:
            raise UsageError(
                f"--map {one_line(pair)}: not of the form run_dir=LABEL", f"there are {' and '.join(FIELDS)}"
            )
        found[field] = label
    return found


def _tell(event: dict[str, Any]) -> None:
    """One line on standard error; one that nobody can read any more stops nothing."""
    from contextlib import suppress

    from ...safety.fences import one_line

    bare = ("event", "alert", "run", "url")
    words = " ".join(one_line(str(v)) if k in bare else f"({k}: {one_line(str(v))})" for k, v in event.items())
    with suppress(OSError):
        sys.stderr.write(f"{words}\n")
        sys.stderr.flush()


def _tell_json(event: dict[str, Any]) -> None:
    """One object a line on standard output."""
    import json
    from contextlib import suppress

    with suppress(OSError):
        sys.stdout.write(f"{json.dumps(event)}\n")
        sys.stdout.flush()


# ----------
# `doctor hook`: a ready file for a scheduler, so that a failed job is diagnosed before anyone asks.

SECONDS, GRACE = 300, 60  # of a diagnosis; what training itself gets to save in a pod


def hook(
    scheduler: Annotated[str, typer.Argument(help="slurm, kubernetes, ray or torchrun.", metavar="SCHEDULER")],
    part: Annotated[
        str,
        typer.Option(help="slurm: epilog, sbatch. kubernetes: sidecar, run.", metavar="PART", show_default="the first"),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write.", metavar="FILE", show_default="standard output"),
    ] = None,
    doctor: Annotated[
        str, typer.Option(help="doctor on the machines where jobs run.", metavar="PATH", show_default="this one")
    ] = "",
    logs: Annotated[str, typer.Option(help="Where a Slurm epilog writes what it did.", metavar="DIR")] = (
        "/var/log/doctor"
    ),
    seconds: Annotated[int, typer.Option(help="At most for one diagnosis.", min=10, max=3600)] = SECONDS,
) -> None:
    """Print a commented file that makes failed jobs explain themselves: for Slurm, Kubernetes, Ray or torchrun.

    The file says at its top how to install it. Whatever doctor does there, the job's exit code stays what it is, and
    the scheduler sees 0 from the hook.
    """
    from ...jobs.hooks.hook_templates import filled, template

    one = template(scheduler, part)
    program = doctor or ("/opt/doctor/bin/doctor" if one.scheduler == "kubernetes" else _own())
    if not program.startswith("/"):
        raise UsageError(f"{program!r} is no absolute path", "a hook has another folder and another PATH than you")
    values = {
        "DOCTOR": program, "LOGS": logs, "SECONDS": str(seconds), "GRACE": str(seconds + GRACE),
        "COMMAND": "python train.py" if one.part == "sbatch" else "train.py",
    }  # fmt: skip
    text = filled(one, values)
    if out is None:
        sys.stdout.write(text)
        return
    _written(out, text, one.script)
    sys.stderr.write(f"wrote {one_line(str(out))}: {one.what}\n")


def _own() -> str:
    """The program that runs now, as others would start it."""
    beside = Path(sys.executable).parent / "doctor"
    return str(beside) if beside.is_file() else shutil.which("doctor") or "/opt/doctor/bin/doctor"


def _written(path: Path, text: str, script: bool) -> None:
    """Never over something that is there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755 if script else 0o644)
    except FileExistsError:
        raise UsageError(f"{one_line(str(path))} is there", "name another file: it is not overwritten") from None
    except OSError as e:
        raise UsageError(f"cannot write {one_line(str(path))}: {e.strerror}", "name another file") from None
    with os.fdopen(fd, "w", encoding="utf-8") as stream:
        stream.write(text)
