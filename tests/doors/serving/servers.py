"""`doctor serve` started as people start it, and messages as Alertmanager sends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

from tests.jobs.notices.receivers import until

# a message that does not end is waited for less long than Alertmanager would
SOON = "import traindoctor.agent.doors.serving.alert_server as s; s._READ_SECONDS = 2.0"
COMMAND = [sys.executable, "-c", f"{SOON}; from traindoctor.agent.doors.cli import main; raise SystemExit(main())", "serve"]


class Serving:
    """A server at work, and the events that it told."""

    def __init__(self, *options: object, **environment: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--alertmanager", "--port", "0", "--json", *map(str, options)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | environment,
        )  # fmt: skip
        self.events: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()
        until(lambda: self.of("listening") or self.process.poll() is not None, 90)
        assert self.of("listening"), self.process.poll()
        self.url = self.of("listening")[0]["url"]
        self.port = int(self.url.split(":")[-1].partition("/")[0])

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in list(self.events) if e["event"] == kind]

    def send(self, data: Any, path: str = "/alertmanager", **headers: str) -> int:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        given = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        request = urllib.request.Request(self.url.replace("/alertmanager", path), body, given, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url.replace("/alertmanager", path), timeout=60) as answer:
            return answer.read().decode()

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(60)
        finally:
            self.process.kill()


def message(*alerts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """As Alertmanager 0.28 sends it; later releases add keys."""
    return {
        "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "doctor",
        "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am:9093",
        "alerts": list(alerts), **more,
    }  # fmt: skip


def alert(
    finger: str = "f1", started: str = "2026-11-22T02:00:00Z", status: str = "firing", **labels: str
) -> dict[str, Any]:
    return {
        "status": status, "labels": {"alertname": "TrainingStopped", **labels}, "annotations": {}, "startsAt": started,
        "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://p:9090", "fingerprint": finger, "later": {"x": 1},
    }  # fmt: skip
