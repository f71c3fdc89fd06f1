"""The server that settings name: its address, the key, and requests to it through the `openai` package's client."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from .model_settings import ModelSettings
from .stream import LINE_BYTES, parsed
from .turns import Asked, ModelTrouble, Setback

# ----------
# One request and its answer in bytes, with an end at a given time whatever the network does.
#
# The request runs beside the caller, in a thread of its own: looking up a name or a header that drips cannot be timed
# out from within. The caller takes what came until its time is over, then leaves; the thread ends with its next byte,
# or when nothing came for as long as `timeout` says.


ERROR_BYTES = 1 << 16
CONNECT_SECONDS = 5.0
LOOK_SECONDS = 0.25  # how often it is looked whether an answer is still wanted


@dataclass(frozen=True, slots=True)
class Head:
    """How an answer begins; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


class Refusal(Exception):
    """An answer that is no success, with the start of what it says."""

    def __init__(self, head: Head, body: bytes) -> None:
        super().__init__(str(head.status))
        self.head = head
        self.body = body.decode("utf-8", "replace")


class _Left(Exception):
    """The caller is gone."""


Put = Callable[[Any], None]


class Exchange:
    """A request under way. Iterate over `pieces`, then `leave`."""

    def __init__(self, work: Callable[[Put], None]) -> None:
        self._items: queue.Queue[Any] = queue.Queue(maxsize=8)
        self._gone = threading.Event()
        self._work = work
        threading.Thread(target=self._run, name="model-request", daemon=True).start()

    def _run(self) -> None:
        end: Exception = EOFError()
        try:
            self._work(self._put)
        except _Left:
            return
        except Exception as e:  # noqa: BLE001 - whatever it is, it is raised where the caller waits
            end = e
        with contextlib.suppress(_Left):
            self._put(end)

    def _put(self, item: Any) -> None:
        while not self._gone.is_set():
            try:
                return self._items.put(item, timeout=0.5)
            except queue.Full:
                continue
        raise _Left

    def pieces(self, until: float, stop: Callable[[], bool] = lambda: False) -> Iterator[bytes]:
        """The decoded bytes of the answer, at most 1 MB at a time.

        Args:
            until: in `time.monotonic()`.
            stop: asked before each piece, and while none comes: whether no more is wanted.

        Raises:
            Refusal, Setback (`stopped`), TimeoutError (`until` is reached), or an error of the HTTP library.
        """
        while True:
            if stop():
                raise stopped()
            left = until - time.monotonic()
            try:
                item = self._items.get(timeout=max(0.0, min(LOOK_SECONDS, left)))
            except queue.Empty:
                if left > LOOK_SECONDS:
                    continue
                raise TimeoutError from None
            if isinstance(item, EOFError):
                return
            if isinstance(item, Exception):
                raise item
            yield item

    def leave(self) -> None:
        """No more is wanted."""
        self._gone.set()


def stopped() -> Setback:
    """What ends a request whose answer nobody waits for."""
    return Setback("stopped", "stopped before its answer was there")


def stop_at_errors(response: Any) -> None:
    """Response hook: an answer that is no success is read here, and no more of it than its start."""
    if response.status_code < 300:
        return
    body = b""
    for piece in response.iter_bytes():
        body += piece
        if len(body) >= ERROR_BYTES:
            break
    raise Refusal(Head(response.status_code, dict(response.headers)), body[:ERROR_BYTES])


# ----------

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
                for piece in response.http_response.iter_bytes():
                    put(piece)

        return Exchange(work)

    def ask(self, method: str, url: str, seconds: float, body: Any = None) -> dict[str, Any]:
        """A short question beside the conversation; an empty answer where none came in time or none can be read."""
        client = self._made()
        headers = {"authorization": f"Bearer {self._key or NO_KEY}", **self.settings.headers}
        timeout = self._timeout(seconds)

        def work(put: Put) -> None:
            with client._client.stream(method, url, headers=headers, json=body, timeout=timeout) as response:
                for piece in response.iter_bytes():
                    put(piece)

        exchange, read = Exchange(work), bytearray()
        try:
            for piece in exchange.pieces(time.monotonic() + seconds):
                read += piece
                if len(read) > LINE_BYTES:
                    return {}
            return parsed(read.decode("utf-8", "replace"))
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
        import httpx2
        import openai

        return (openai.OpenAIError, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError)


def _parts(url: str) -> SplitResult:
    """The parts of an address, all of them empty where it is none."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


# ----------
# How many tokens fit the model: asked of servers of one's own, which each say it in another way.
#
# vLLM and SGLang say it beside the model's name, llama.cpp and Ollama in pages of their own. What a server runs the
# model with counts, not what the model was trained for: a longer prompt is refused by some and cut without a word by
# others.

SECONDS = 2.0
# Ollama runs a model with this many tokens on a GPU below 24 GiB, and cuts off the start of what is longer.
OLLAMA_DEFAULT = 4096
_BESIDE_THE_NAME = ("max_model_len", "context_length", "context_window", "max_context_length")


@dataclass(slots=True)
class _Server:
    """A server that is asked, within a time for all questions together."""

    client: Client
    listed: dict[str, Any]
    until: float

    def page(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """What a path beside `/v1` answers; empty where there is nothing."""
        root = self.client.base.removesuffix("/v1")
        return self.client.ask(method, f"{root}{path}", max(0.05, self.until - time.monotonic()), body)


Found = tuple[int, str]


def context_window(settings: ModelSettings) -> Found:
    """Tokens that fit, in and out together, and who says so; 0 where nobody does.

    Takes 2 s at most. A hosted service, that is one with no address in the settings, is not asked.
    """
    if settings.window > 0:
        return settings.window, "the setting `window`"
    client = Client(settings)
    if client.hosted:
        return 0, "unknown: a hosted service is not asked"
    try:
        client.check()
        answers = _answers(client, settings.model, time.monotonic() + SECONDS)
        return next(answers, (0, "unknown: the server does not say"))
    except ModelTrouble:
        return 0, "unknown: the server cannot be asked"
    finally:
        client.close()


def _answers(client: Client, model: str, until: float) -> Iterator[Found]:
    models = client.models(max(0.05, until - time.monotonic()))
    if not models and time.monotonic() > until:
        return
    listed = next((m for m in models if m.get("id") == model), models[0] if len(models) == 1 else {})
    server = _Server(client, listed, until)
    order: list[Callable[[_Server, str], Iterator[Found]]] = [_beside_the_name, _llama_cpp, _ollama]
    if listed.get("owned_by") == "library":  # so Ollama lists what it has
        order = [_ollama]
    for ask in order:
        yield from ask(server, model)
        if time.monotonic() > until:
            return
    yield from _trained(listed)


def _beside_the_name(server: _Server, model: str) -> Iterator[Found]:
    for name in _BESIDE_THE_NAME:
        yield from _tokens(server.listed.get(name), f"`{name}` of the server's list of models")


def _llama_cpp(server: _Server, model: str) -> Iterator[Found]:
    # A router of several models would load one that is merely asked about, unless told not to.
    for path in (f"/props?model={quote(model, safe='')}&autoload=false", "/props"):
        stated = server.page("GET", path).get("default_generation_settings")
        if isinstance(stated, Mapping):
            yield from _tokens(stated.get("n_ctx"), "`n_ctx` of llama.cpp's /props")


def _trained(listed: Mapping[str, Any]) -> Iterator[Found]:
    meta = listed.get("meta")
    if isinstance(meta, Mapping):
        yield from _tokens(meta.get("n_ctx"), "`meta.n_ctx` of the server's list of models")
        yield from _tokens(meta.get("n_ctx_train"), "`meta.n_ctx_train` of the server's list of models")


def _ollama(server: _Server, model: str) -> Iterator[Found]:
    """What the loaded model runs with, else what its file sets, else Ollama's default."""
    running = server.page("GET", "/api/ps").get("models")
    for loaded in running if isinstance(running, list) else ():
        if isinstance(loaded, dict) and _same(model, loaded.get("name"), loaded.get("model")):
            yield from _tokens(loaded.get("context_length"), "what Ollama runs the model with")
    shown = server.page("POST", "/api/show", {"model": model})
    parameters = shown.get("parameters")
    for line in parameters.splitlines() if isinstance(parameters, str) else ():
        name, _, value = line.strip().partition(" ")
        if name == "num_ctx" and (digits := value.strip()[:12]).isdecimal():
            yield from _tokens(int(digits), "`num_ctx` of the model in Ollama")
    facts = shown.get("model_info")
    for name, value in facts.items() if isinstance(facts, Mapping) else ():
        if str(name).endswith(".context_length"):
            for tokens, _ in _tokens(value, ""):
                yield min(tokens, OLLAMA_DEFAULT), f"Ollama's default; OLLAMA_CONTEXT_LENGTH raises it, to {tokens}"


def _same(model: str, *names: Any) -> bool:
    return any(name in (model, f"{model}:latest") for name in names)


def _tokens(value: Any, origin: str) -> Iterator[Found]:
    """A count that can be one."""
    if isinstance(value, int) and not isinstance(value, bool) and 256 <= value <= 100_000_000:
        yield value, origin
