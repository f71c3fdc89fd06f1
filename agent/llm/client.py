"""The server that settings name: its address, the key, and requests to it through the `openai` package's client."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from .exchange import CONNECT_SECONDS, Exchange, Put, Refusal, decoded, http_library, stop_at_errors
from .settings import ModelSettings
from .stream import LINE_BYTES, parsed
from .troubles import Asked, Setback

HOSTED = "https://api.openai.com/v1"
NO_KEY = "no-key"  # what servers get that need none: the client insists on one
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Client:
    """Requests to one server.

    Attributes:
        base: the server's address, `/v1` included, without a slash at the end.
        hosted: it is the client's own default.
    """

    def __init__(self, settings: ModelSettings) -> None:
        named = settings.base_url or os.environ.get("OPENAI_BASE_URL", "")
        self.settings = settings
        self.base = (named or HOSTED).strip().rstrip("/")
        self._parts = _parts(self.base)
        self.hosted = self._parts.hostname == _parts(HOSTED).hostname
        # Settings that were resolved hold the key that belongs to the server, or none: no other may go there.
        ambient = "" if settings.named_by else os.environ.get("OPENAI_API_KEY", "")
        self._key = (settings.api_key or ambient).strip()
        self._openai: Any = None
        self._lock = threading.Lock()

    def asked(self, fields: tuple[str, ...] = (), others: str = "") -> Asked:
        """What messages about this server may name, and what they may not."""
        values = [self._key, *self.settings.headers.values()]
        if self._parts.password:
            values.append(self._parts.password)
        secrets = tuple(v for v in values if len(v) >= 4 and v != NO_KEY)
        place = self.settings.key_from
        place = f"look at {place}" if place not in ("", "OPENAI_API_KEY") else "set OPENAI_API_KEY or `api_key_file`"
        place = f"{'refused the key' if self._key else 'wants a key'} ({{status}}): {place}"
        return Asked(self.settings.model, f"{self.address}/chat/completions", secrets, fields, others, place)

    @property
    def address(self) -> str:
        """The address without a name and password that may stand in it."""
        return self._parts._replace(netloc=self._parts.netloc.rpartition("@")[2]).geturl()

    def check(self) -> None:
        """See that a request can be made at all.

        Raises:
            Setback: `key` or `connection`.
        """
        if self.hosted and not self._key:
            raise Setback("key", "no key: set OPENAI_API_KEY or `api_key_file`, or `base_url` for a server of your own")
        if not (self._key.isascii() and self._key.isprintable()):
            raise Setback("key", "the key holds characters that no key has: look at OPENAI_API_KEY or `api_key_file`")
        try:
            sound = self._parts.scheme in ("http", "https") and bool(self._parts.hostname) and self._parts.port != 0
        except ValueError:
            sound = False
        if not sound:
            raise Setback("connection", f"`base_url` is no web address: {self.asked().plain(self.base, 80)}")

    def chat(self, body: Mapping[str, Any], seconds: float) -> Exchange:
        """Send a request for a completion; `seconds` bound how long nothing may come."""
        client = self._made()
        rest = {k: v for k, v in body.items() if k not in ("model", "messages")}
        timeout = self._timeout(seconds)

        def work(put: Put) -> None:
            create = client.chat.completions.with_streaming_response.create
            with create(model=body["model"], messages=body["messages"], extra_body=rest, timeout=timeout) as response:
                for piece in decoded(response.http_response):
                    put(piece)

        return Exchange(work)

    def ask(self, method: str, url: str, seconds: float, body: Any = None) -> dict[str, Any]:
        """A short question beside the conversation; an empty answer where none came in time or none can be read."""
        client = self._made()
        headers = {"authorization": f"Bearer {self._key or NO_KEY}", **self.settings.headers}
        timeout = self._timeout(seconds)

        def work(put: Put) -> None:
            with client._client.stream(method, url, headers=headers, json=body, timeout=timeout) as response:
                for piece in decoded(response):
                    put(piece)

        exchange, read = Exchange(work), bytearray()
        try:
            for piece in exchange.pieces(time.monotonic() + seconds):
                read += piece
                if len(read) > LINE_BYTES:
                    return {}
            return parsed(bytes(read))
        except (*self.errors(), Refusal, Setback, OSError, UnicodeError):
            return {}
        finally:
            exchange.leave()

    def models(self, seconds: float = 2.0) -> list[dict[str, Any]]:
        """The models that the server lists, none where it does not say so in time."""
        listed = self.ask("GET", f"{self.base}/models", seconds).get("data")
        return [m for m in listed if isinstance(m, dict)] if isinstance(listed, list) else []

    def close(self) -> None:
        """Close the connections."""
        if self._openai is not None:
            with contextlib.suppress(OSError):
                self._openai.close()
            self._openai = None

    def _made(self) -> Any:
        with self._lock:
            if self._openai is None:
                import openai

                host = (self._parts.hostname or "").lower()
                http = openai.DefaultHttpxClient(
                    follow_redirects=False,  # what is sent goes to the named server and to no other
                    trust_env=host not in _LOOPBACK,  # a proxy of the site does not know this machine's own servers
                    event_hooks={"response": [stop_at_errors]},
                )
                self._openai = openai.OpenAI(
                    api_key=self._key or NO_KEY,
                    base_url=self.base,
                    max_retries=0,
                    default_headers=self._headers(),
                    http_client=http,
                )
                if not self.hosted:
                    self._forget_surroundings()
            return self._openai

    def _forget_surroundings(self) -> None:
        """Drop what the client read from the environment: it is meant for its maker's own service, for no other."""
        self._openai.organization = self._openai.project = None
        self._openai._custom_headers = self._headers()

    def _headers(self) -> dict[str, str]:
        return {"accept-encoding": "identity", **self.settings.headers}

    def _timeout(self, seconds: float) -> Any:
        import openai

        seconds = max(0.05, seconds)
        return openai.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds, write=seconds, pool=CONNECT_SECONDS)

    def errors(self) -> tuple[type[BaseException], ...]:
        """What a request may raise apart from `Refusal` and `Setback`."""
        import openai

        http = http_library(self._made()._client)
        return (openai.OpenAIError, http.HTTPError, http.InvalidURL, http.StreamError)


def _parts(url: str) -> SplitResult:
    """The parts of an address, all of them empty where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
