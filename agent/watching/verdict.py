"""A diagnosis of the run in a process of its own, when an alarm came: one at a time, never in the way of watching."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import datetime

from .alarm import Alarm

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
        argv = [sys.executable, "-P", "-c", "from traindoctor.agent.cli import main; raise SystemExit(main())",
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
