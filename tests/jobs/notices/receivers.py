"""Servers that notices are sent to in tests: a webhook that answers as told, and a mailbox behind real SMTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Hook:
    """What a webhook heard; `answers` are the status codes of its first requests, after which it says 200."""

    def __init__(self, answers: list[int], port: int = 0) -> None:
        self.answers, self.heard, self.headers, self.paths = list(answers), [], [], []
        hook = self

        class Request(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                code = hook.answers.pop(0) if hook.answers else 200
                if code == 200:
                    hook.paths.append(self.path)
                    hook.headers.append(dict(self.headers))
                    hook.heard.append(json.loads(body))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Request)
        self.port = self.server.server_address[1]
        self.heard: list[Any]
        self.headers: list[dict[str, str]]
        self.paths: list[str]


@contextmanager
def webhook(*answers: int, port: int = 0) -> Iterator[Hook]:
    """A webhook on loopback."""
    hook = Hook(list(answers), port)
    thread = threading.Thread(target=hook.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.server.shutdown()
        hook.server.server_close()
        thread.join(10)


@contextmanager
def mailbox() -> Iterator[tuple[int, list[Message]]]:
    """An SMTP server on loopback, and the mails it took."""
    from aiosmtpd.controller import Controller

    mails: list[Message] = []

    class Taking:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            mails.append(message_from_bytes(envelope.content))
            return "250 taken"

    controller = Controller(Taking(), hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        yield controller.port, mails
    finally:
        controller.stop()


def free_port() -> int:
    """A port that nobody listens on."""
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something holds; its value, or the last one when time is up."""
    end = time.monotonic() + seconds
    while not (value := holds()) and time.monotonic() < end:
        time.sleep(0.02)
    return value
