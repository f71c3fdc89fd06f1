"""Several runs followed at once, each by a thread of its own: one on a dead mount costs the others nothing."""

from __future__ import annotations

import json
import math
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from .alarm import LIMITS, Alarm
from .followed_run import Run, State

_REST, _LONGEST = 10.0, 5.0  # seconds of rest for a second that looking keeps a core busy, and at most
_QUEUE = 10_000  # alarms that wait to be told


@dataclass(slots=True)
class _Followed:
    run: Run
    since: float | None = None  # when the look began that is under way
    done: bool = False  # nothing more will come of it
    stuck: bool = False
    fault: BaseException | None = None
    looks: int = 0


@dataclass(slots=True)
class Following:
    """Follows runs until told to stop.

    Attributes:
        every: seconds between two looks.
        once: what has come so far is read and judged, then the run is done.
        linger: seconds after the end of a run until it is done; infinite to stay.
        patience: seconds to wait for something to follow.
        unreachable: seconds that a look may take until the folder counts as dead.
    """

    runs: list[Run]
    every: float = 1.0
    once: bool = False
    linger: float = 600.0
    patience: float = 600.0
    unreachable: float = LIMITS.unreachable
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    _queue: queue.Queue[Alarm] = field(default_factory=lambda: queue.Queue(_QUEUE))
    _stop: threading.Event = field(default_factory=threading.Event)
    _followed: list[_Followed] = field(default_factory=list)
    _last: Alarm | None = None

    def start(self) -> None:
        """Begin to look."""
        self._followed = [_Followed(run) for run in self.runs]
        for one in self._followed:  # a daemon: what hangs on a dead server must not keep us from ending
            threading.Thread(target=self._follow, args=(one,), name=f"watch {one.run.root}", daemon=True).start()

    def alarms(self, wait: float) -> Iterator[Alarm]:
        """What came, or nothing after `wait` seconds.

        Raises:
            RuntimeError: a thread died of a bug of ours.
        """
        for one in self._followed:
            if one.fault is not None:
                raise RuntimeError(f"following {one.run.root} failed") from one.fault
            if (alarm := self._unreachable(one)) is not None:
                yield self._counted(alarm)
        try:
            yield self._counted(self._queue.get(timeout=wait))
            while True:
                yield self._counted(self._queue.get_nowait())
        except queue.Empty:
            return

    @property
    def done(self) -> bool:
        """Whether every run is done, and all of it told."""
        return all(f.done or (f.stuck and self.once) for f in self._followed) and self._queue.empty()

    @property
    def followed(self) -> bool:
        """Whether there ever was anything to follow."""
        return any(f.run.followed or f.run.state.step is not None for f in self._followed)

    def states(self) -> list[tuple[str, State]]:
        """How each run stands."""
        return [(str(f.run.root), f.run.state) for f in self._followed]

    def stop(self) -> None:
        """Look no more. What hangs is left behind."""
        self._stop.set()
        for one in self._followed:
            if one.since is None or time.monotonic() - one.since < self.unreachable:
                deadline = time.monotonic() + 2.0
                while not one.done and one.since is not None and time.monotonic() < deadline:
                    time.sleep(0.02)

    def _counted(self, alarm: Alarm) -> Alarm:
        self.counts[(alarm.kind, alarm.severity)] += 1
        return alarm

    def _follow(self, one: _Followed) -> None:
        began = time.monotonic()
        over: float | None = None
        try:
            while not self._stop.is_set():
                one.since, busy = time.monotonic(), time.thread_time()
                last = self.once and one.looks > 0 and not one.run.more
                for alarm in one.run.look(last):
                    self._queue.put(alarm)
                one.looks += 1
                one.since, one.stuck = None, False
                rest = min(_LONGEST, _REST * (time.thread_time() - busy))
                over = (over or time.monotonic()) if one.run.ended else None
                nothing = not one.run.followed and time.monotonic() - began > self.patience
                if last or nothing or (over is not None and time.monotonic() - over >= self.linger):
                    break
                if self.once and nothing is False and not one.run.followed:
                    self._stop.wait(0.2)
                elif not self.once and not one.run.more:
                    self._stop.wait(max(self.every, rest))
        except Exception as e:  # noqa: BLE001 - told by the thread that asks for alarms
            one.fault = e
        finally:
            one.since, one.done = None, True
            one.run.close()

    def _unreachable(self, one: _Followed) -> Alarm | None:
        if one.stuck or one.since is None or time.monotonic() - one.since < self.unreachable:
            return None
        one.stuck = True
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        text = f"it does not answer for {self.unreachable:.0f} s"
        root = str(one.run.root)
        return Alarm(when, "alarm", "unreachable", None, None, root, None, None, "", text, root)


def runs_of(paths: list[Path], kinds: frozenset[str], stall: float, pids: tuple[int, ...]) -> list[Run]:
    """A run for each path; nothing is asked of them yet."""
    return [Run(p, kinds, stall, pids) for p in paths]


# ----------
# A diagnosis of the run in a process of its own, when an alarm came: one at a time, never in the way of watching.

_SECONDS = 180.0  # that a diagnosis may take
_SHOWN = 400  # characters of its verdict


class Diagnosis:
    """Starts `doctor triage` for a run and hands its verdict on; while one is under way no other starts."""

    def __init__(self, tell: Callable[[Alarm], None]) -> None:
        self._tell = tell
        self._child: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def begin(self, alarm: Alarm) -> None:
        """Diagnose the run of an alarm."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._thread = threading.Thread(target=self._run, args=(alarm,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Until the one that is under way has told its verdict, or its time is up."""
        if self._thread is not None:
            self._thread.join(_SECONDS + 5)

    def stop(self) -> None:
        """End the one that is under way."""
        if self._child is not None and self._child.poll() is None:
            self._child.kill()

    def _run(self, alarm: Alarm) -> None:
        argv = [sys.executable, "-P", "-c", "from traindoctor.agent.doors.cli import main; raise SystemExit(main())",
                "triage", alarm.run, "--json", "--offline", "--quiet"]  # fmt: skip
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        ) as self._child:
            try:
                out, _ = self._child.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                self._child.kill()
                out, _ = self._child.communicate()
        self._tell(_told(out, alarm))


def _told(out: bytes, alarm: Alarm) -> Alarm:
    """The verdict as a line; a diagnosis that failed says so."""
    try:
        report = json.loads(out)
        cause, said = report.get("root_cause") or {}, [s["text"] for s in report.get("summary") or []]
        sure = f", {cause['confidence']:.0%}" if cause.get("confidence") else ""
        text = f"{cause.get('id') or 'no cause named'} ({report['status']}{sure}): {said[0] if said else ''}"
        more = f"; doctor ask --session {report['session']}" if report.get("session") else ""
        text = text[: _SHOWN - len(more)].rstrip(": ") + more
    except (ValueError, TypeError, KeyError, AttributeError):
        text = "the diagnosis gave no report: try `doctor triage` by hand"
    when = datetime.now().astimezone().isoformat(timespec="seconds")
    return Alarm(when, "notice", "verdict", alarm.step, None, "", None, None, "", text, alarm.run)


# ----------
# How the runs stand in Prometheus' text format, on loopback: GET /metrics.

_GAUGES: tuple[tuple[str, str, Callable[[State], float | None]], ...] = (
    ("doctor_watch_up", "Whether the folder of the run is there.", lambda s: float(s.there)),
    ("doctor_watch_ended", "Whether the run has ended.", lambda s: float(s.ended)),
    ("doctor_watch_step", "The newest step seen.", lambda s: s.step),
    ("doctor_watch_loss", "The newest training loss seen.", lambda s: s.loss),
    ("doctor_watch_seconds_since_progress", "Seconds without a new step.", lambda s: s.quiet),
    ("doctor_watch_report_interval_seconds", "Median seconds between two steps seen.", lambda s: s.step_seconds),
    ("doctor_watch_files", "Files that are followed.", lambda s: float(s.files)),
    (
        "doctor_watch_disk_free_bytes",
        "Free on the file system of the run.",
        lambda s: float(s.free) if s.total else None,
    ),
    ("doctor_watch_disk_size_bytes", "Size of that file system.", lambda s: float(s.total) if s.total else None),
)
_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposed(states: list[tuple[str, State]], counts: Counter[tuple[str, str]]) -> str:
    """The whole text."""
    lines: list[str] = []
    for name, about, value in _GAUGES:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        for run, state in states:
            if (number := value(state)) is not None:
                lines.append(f'{name}{{run="{_escaped(run)}"}} {_number(number)}')
    lines += [
        "# HELP doctor_watch_alarms_total Alarms and notices told.", "# TYPE doctor_watch_alarms_total counter",
        *(f'doctor_watch_alarms_total{{kind="{k}",severity="{s}"}} {n}' for (k, s), n in sorted(counts.items())),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return ("+Inf" if value > 0 else "-Inf") if math.isinf(value) else repr(value)


class Endpoint:
    """Serves the text on 127.0.0.1 until closed. Only hosts that mean this machine are answered."""

    def __init__(self, port: int, text: Callable[[], str]) -> None:
        class Answer(BaseHTTPRequestHandler):
            timeout = 10  # seconds that a client may take

            def do_GET(self) -> None:
                host = self.headers.get("Host", "").rpartition(":")[0] or self.headers.get("Host", "")
                known = host in ("127.0.0.1", "localhost", "[::1]")
                body = text().encode() if known and self.path.split("?")[0] == "/metrics" else b"try /metrics\n"
                self.send_response(200 if body[:3] != b"try" else 404 if known else 403)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Answer)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
