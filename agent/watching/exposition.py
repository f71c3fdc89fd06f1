"""How the runs stand in Prometheus' text format, on loopback: GET /metrics."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .run import State

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
