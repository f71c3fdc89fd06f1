"""`doctor watch`: a live run followed through its files; each alarm once, as a line for people or for programs."""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..sanitize import one_line
from .options import Json
from .streams import print_line

if TYPE_CHECKING:
    from ..watching.alarm import Alarm
    from ..watching.exposition import Endpoint
    from ..watching.following import Following
    from ..watching.verdict import Diagnosis

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
    from ..watching.following import Following, runs_of

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
        from ..watching.exposition import Endpoint, exposed

        try:
            self._endpoint = Endpoint(port, lambda: exposed(self.following.states(), self.following.counts))
        except OSError as e:
            raise UsageError(f"port {port} cannot be served: {e.strerror}", "name another with --prometheus") from None
        _note(f"metrics on http://127.0.0.1:{self._endpoint.port}/metrics")

    def follow(self, diagnose: bool) -> int:
        """Until the end; the exit code."""
        if diagnose:
            from ..watching.verdict import Diagnosis

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
        from ..watching.said import advice_of, json_of, line_of

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
        from ..notices.announce import announce_alarm

        if why := announce_alarm(alarm, run, self.urls):
            _note(why)

    def _ended(self) -> int:
        from ..watching.said import summary_of

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
    from ..watching.kinds import KINDS

    return frozenset(_known(only, "--only") or KINDS) - _known(skip, "--skip")


def _ends(exit_on: list[str] | None) -> frozenset[str]:
    return _known([k for k in exit_on or [] if k != "alarm"], "--exit-on") | (
        {"alarm"} if "alarm" in (exit_on or []) else set()
    )


def _known(names: list[str] | None, option: str) -> frozenset[str]:
    from ..watching.kinds import KINDS

    for name in names or []:
        if name not in KINDS:
            raise UsageError(f"{option}: there is no kind {one_line(name)!r}", f"one of {', '.join(KINDS)}")
    return frozenset(names or ())


def _targets(flags: list[str] | None) -> list[str]:
    from ..notices.targets import checked

    return checked(flags or ())
