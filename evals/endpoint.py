"""A model's server that follows a script, for tests and replays: real HTTP on this machine, no model.

    with ScriptedEndpoint([Say("It diverged.", calls=[("grep_logs", {"pattern": "nan"})]), Fault("busy")]) as server:
        ...                                     # a client speaks to server.url; server.requests holds what arrived

It speaks `POST /v1/chat/completions`, streamed or whole as the request asks, and `GET /v1/models`. An answer of the
script is a `Say`, a `Fault` of the table in `evals.faults`, or the JSON that recorded exchanges hold:
`{"content": ..., "tool_calls": [{"name": ..., "arguments": ...}]}` or `{"error": {"status": ..., "message": ...}}`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .answers import Answer, Fault, Refuse, Say, Script, answer, deltas, recorded
from .faults import BEGUN, FaultKind, bomb, error_body

__all__ = ["Answer", "Fault", "Refuse", "Request", "Say", "ScriptedEndpoint", "answer", "recorded"]

EVENTS = {"content-type": "text/event-stream"}


@dataclass(slots=True)
class Request:
    """What arrived: `raw` are the bytes of the body, `body` what they mean, empty where they are no JSON object."""

    path: str
    headers: dict[str, str]
    raw: bytes
    body: dict[str, Any] = field(default_factory=dict)


class ScriptedEndpoint:
    """The server, as a context manager.

    Attributes:
        requests: requests for completions, in the order they arrived.
        asked: paths of all other requests.
    """

    def __init__(
        self, script: Script, *, models: Sequence[Any] = ("scripted",), pages: Mapping[str, Any] | None = None
    ):
        """`models`: ids or whole entries of `/v1/models`; `pages`: JSON for further paths, such as `/props`.

        The last answer of a script is given again when the script is over; a function gets the request and its number.
        """
        self.requests: list[Request] = []
        self.asked: list[str] = []
        self.stopping = threading.Event()
        self._script = script
        self._pages = dict(pages or {})
        self._pages.setdefault(
            "/v1/models", {"object": "list", "data": [m if isinstance(m, Mapping) else {"id": m} for m in models]}
        )
        self._lock = threading.Lock()
        endpoint = self

        class Connection(_Connection):
            server_side = endpoint

        self._server = _Server(("127.0.0.1", 0), Connection)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The base URL; where the script begins with a failure to connect, the address that fails that way."""
        port = self._server.server_address[1]
        first = None if callable(self._script) else answer(self._script[0])
        if isinstance(first, Fault) and first.row.where:
            return first.row.where.format(port=port, closed=_closed_port())
        return f"http://127.0.0.1:{port}/v1"

    def __enter__(self) -> ScriptedEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def next(self, request: Request) -> tuple[int, Answer]:
        """Note a request and give the answer that the script has for it."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        if callable(self._script):
            return number, answer(self._script(request.body, number))
        return number, answer(self._script[min(number, len(self._script)) - 1])

    def page(self, path: str) -> Any:
        """What a path other than that of completions answers, None where there is nothing."""
        with self._lock:
            self.asked.append(path)
        return self._pages.get(path.partition("?")[0])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that leave are no errors here."""


class _Connection(BaseHTTPRequestHandler):
    server_side: ScriptedEndpoint
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._give_page()

    def _give_page(self) -> None:
        found = self.server_side.page(self.path)
        status = 404 if found is None else 200
        self._whole(status, json.dumps({"detail": "Not Found"} if found is None else found).encode())

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        if not self.path.endswith("/chat/completions"):
            return self._give_page()
        headers = {k.lower(): v for k, v in self.headers.items()}
        request = Request(self.path, headers, raw, _object(raw))
        number, said = self.server_side.next(request)
        if isinstance(said, Say):
            self._say(said, request.body, number)
        elif isinstance(said, Refuse):
            more = {} if said.retry_after is None else {"retry-after": str(said.retry_after)}
            self._whole(said.status, json.dumps({"error": {"message": said.message}}).encode(), more)
        elif "stream_options" in said.kind.replace("-", "_") and "stream_options" not in request.body:
            self._say(Say("done"), request.body, number)
        else:
            with contextlib.suppress(OSError):
                self._fail(said.row, request.body, number)

    def _say(self, said: Say, body: Mapping[str, Any], number: int) -> None:
        message = said.message(number)
        guess = tuple(max(1, len(json.dumps(x)) // 4) for x in (body.get("messages"), message))
        tokens = said.usage or (guess[0], guess[1])
        finish = said.finish or ("tool_calls" if said.calls else "stop")
        self._complete(message, finish, tokens if said.usage != (0, 0) else None, body, said.piece)

    def _complete(
        self, message: Mapping[str, Any], finish: str, tokens: Any, body: Mapping[str, Any], piece: int = 24
    ) -> None:
        names = ("prompt_tokens", "completion_tokens", "total_tokens")
        usage = {"usage": dict(zip(names, (*tokens, sum(tokens)), strict=True))} if tokens else {}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": finish}
            head = {"object": "chat.completion", "model": body.get("model", "")}
            return self._whole(200, json.dumps({**head, "choices": [choice], **usage}).encode())
        self._begin(EVENTS)
        for delta in deltas(message, piece):
            self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        if usage and (body.get("stream_options") or {}).get("include_usage"):
            self._event({"choices": [], **usage})
        self._send(b"data: [DONE]\n\n")

    def _fail(self, row: FaultKind, body: Mapping[str, Any], number: int) -> None:
        """Play a row of the table."""
        if row.play == "status":
            self._whole(row.status, error_body(row), row.headers)
        elif row.play == "body":
            self._whole(row.status, row.body, row.headers)
        elif row.play == "message":
            self._complete({"role": "assistant", **row.message}, row.finish, None, body)
        elif row.play == "pieces":
            self._pieces(row, body)
        elif row.play == "reset":
            # Closing with a linger of zero seconds sends a reset instead of an orderly end.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif row.play == "no-http":
            self._send(b"SSH-2.0-OpenSSH_9.6\r\n")
        elif row.play == "hang":
            self.server_side.stopping.wait(60)
        elif row.play == "drip-head":
            self._drip(b"HTTP/1.1 200 OK\r\nx-slow: " + b"a" * 10_000)
        elif row.play == "bomb":
            self._begin({"content-encoding": "gzip"})
            self._send(bomb())
        else:
            self._unending(row)
        self.close_connection = True

    def _pieces(self, row: FaultKind, body: Mapping[str, Any]) -> None:
        self._begin(EVENTS)
        if row.body == b"garbage":
            self._send(b": a comment\n\nevent: noise\nid: 7\nretry: 10\nwhat is this\n\ndata: ping\n\n")
            self._event(BEGUN)
            self._send(b"\x00\xff\xfe\ngarbage: {\n\ndata:\n\n")
            self._event({"choices": [{"index": 0, "delta": {"content": "diverged."}, "finish_reason": "stop"}]})
            return self._send(b"data:[DONE]\n\n")
        if not row.error or "error" in row.error:
            self._event(BEGUN)
        if row.body == b"open":
            self._event({"choices": [{"index": 0, "delta": {"content": "diverged."}, "finish_reason": "stop"}]})
            self._send(b"data: [DONE]\n\n")
            self.server_side.stopping.wait(60)
            return
        if row.error:
            self._event(row.error)
        elif row.body == b"hang":
            self.server_side.stopping.wait(60)
        else:
            self._send(row.body)
        self._send(b"data: [DONE]\n\n")

    def _unending(self, row: FaultKind) -> None:
        """What never ends, or ends too early."""
        self._begin(EVENTS)
        if row.play == "endless":
            while not self.server_side.stopping.is_set():
                self._event({"choices": [{"index": 0, "delta": row.message, "finish_reason": None}]})
        elif row.play == "line":
            self._send(b'data: {"choices": [{"index": 0, "delta": {"content": "')
            for _ in range(32):
                self._send(b"a" * (1 << 20))
            self._send(b'"}}]}\n\n')
        elif row.play == "drip":
            self._drip(b": nothing to say yet\n\n" * 1000)
        else:
            self._event(BEGUN)
            if row.play == "half":
                self._send('data: {"choices": [{"index": 0, "delta": {"content": "größ'.encode()[:-1])

    def _drip(self, data: bytes) -> None:
        for letter in data:
            self._send(bytes([letter]))
            if self.server_side.stopping.wait(0.02):
                break

    def _whole(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self._send(data)

    def _begin(self, headers: Mapping[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "connection": "close"}.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True

    def _event(self, data: Mapping[str, Any]) -> None:
        self._send(b"data: " + json.dumps({"object": "chat.completion.chunk", **data}).encode() + b"\n\n")

    def _send(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()


def _object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _closed_port() -> int:
    """A port at which nothing listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
