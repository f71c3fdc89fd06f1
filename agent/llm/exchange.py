"""One request and its answer in bytes, with an end at a given time whatever the network does.

The request runs beside the caller, in a thread of its own: looking up a name or a header that drips cannot be timed out
from within. The caller takes what came until its time is over, then leaves; the thread ends with its next byte, or when
nothing came for as long as `timeout` says.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .troubles import Setback

PIECE = 1 << 16
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
        """The decoded bytes of the answer, at most 64 kB at a time.

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


def http_library(client: Any) -> Any:
    """The HTTP library that the `openai` package stands on: `httpx2` since its version 3, before that `httpx`."""
    names = [c.__module__.partition(".")[0] for c in type(client).__mro__]
    return sys.modules[next(n for n in names if n.startswith("httpx"))]


def stop_at_errors(response: Any) -> None:
    """Response hook: an answer that is no success is read here, and no more of it than its start."""
    if response.status_code < 300:
        return
    body = b""
    for piece in decoded(response):
        body += piece
        if len(body) >= ERROR_BYTES:
            break
    raise Refusal(Head(response.status_code, dict(response.headers)), body[:ERROR_BYTES])


def decoded(response: Any) -> Iterator[bytes]:
    """The bytes of a response, unpacked in bounded steps where it is compressed against our wish.

    Raises:
        Setback: `garbled`: it is compressed in a way that was not asked for, or damaged.
    """
    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("", "identity"):
        yield from response.iter_raw()
        return
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise Setback("garbled", f"the server's answer is compressed ({coding[:20]!r}), which was not asked for")
    unpack = zlib.decompressobj(wbits=47)
    try:
        for raw in response.iter_raw():
            piece = raw
            while piece:  # as long as there is input left, or output that the bound held back
                piece = unpack.decompress(raw, PIECE)
                raw = unpack.unconsumed_tail
                yield piece
    except zlib.error:
        raise Setback("garbled", "the server's compressed answer is damaged") from None
