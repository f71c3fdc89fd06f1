"""Bytes of an answer -> its pieces: server-sent events or one JSON document, however the bytes are cut.

Nothing here trusts the server: a line and a document have a largest size, and what is no JSON is told as such.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .troubles import Setback

LINE_BYTES = 8 << 20  # one line of events, or a whole document: a megabyte of text, escaped in the longest way
TOTAL_BYTES = 64 << 20
_BLANKS = b"\xef\xbb\xbf \t\r\n"  # a byte order mark may come first


class Pieces:
    """Takes the bytes of one answer as they come.

    Attributes:
        whole: the answer was one document, not a stream.
        done: the server said that the stream is at its end.
    """

    def __init__(self) -> None:
        self.whole = False
        self.done = False
        self.events = 0
        self._kind = ""
        self._buffer = bytearray()
        self._searched = 0
        self._total = 0
        self._data: list[bytes] = []
        self._held = 0

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """The objects that are complete with these bytes.

        Raises:
            Setback: `endless` or `garbled`.
        """
        self._total += len(data)
        if self._total > TOTAL_BYTES:
            raise Setback("endless", f"the server's answer does not end: stopped after {TOTAL_BYTES >> 20} MB")
        self._buffer += data
        if not self._kind and not self._recognised():
            return
        if len(self._buffer) > LINE_BYTES and (self.whole or self._line_end() < 0):
            raise Setback("endless", f"the server sent a piece of more than {LINE_BYTES >> 20} MB: stopped reading")
        if not self.whole:
            for line in self._lines():
                yield from self._line(line)

    def end(self) -> Iterator[dict[str, Any]]:
        """What is complete now that no more bytes come.

        Raises:
            Setback: `garbled`: there was nothing, or nothing that is an answer.
        """
        if not self._kind:
            raise Setback("garbled", "the server answered with nothing")
        if self.whole:
            yield parsed(bytes(self._buffer))
        else:
            # A last line without its end is whole where it can be read, else it is part of what was cut off.
            last = [self._buffer.removesuffix(b"\r")] if self._buffer else []
            for line in (*last, b""):
                yield from self._line(bytes(line), ended=True)
        if not self.whole and not self.events and not self.done:
            raise Setback("garbled", "the server answered with something that is no completion")

    def _recognised(self) -> bool:
        start = self._buffer.lstrip(_BLANKS)
        if not start:
            del self._buffer[:-3]
            return False
        if start[:1] == b"<":
            raise Setback("garbled", "the server answered with a web page: `base_url` usually ends in /v1")
        self.whole = start[:1] in (b"{", b"[")
        self._kind = "document" if self.whole else "events"
        self._buffer = start
        return True

    def _line_end(self) -> int:
        """Where the next line ends, -1 if it has not; what was searched is not searched again."""
        found = min((i for mark in b"\r\n" if (i := self._buffer.find(mark, self._searched)) >= 0), default=-1)
        if found < 0:
            self._searched = len(self._buffer)
        return found

    def _lines(self) -> Iterator[bytes]:
        """Complete lines; they end with CR LF, LF or CR, and a CR at the end of the bytes may be half of CR LF."""
        start = 0
        view = bytes(self._buffer) if self._line_end() >= 0 else b""
        while view:
            cr, lf = view.find(b"\r", start), view.find(b"\n", start)
            end = min((i for i in (cr, lf) if i >= 0), default=-1)
            if end < 0 or (end == cr and end == len(view) - 1):
                break
            yield view[start:end]
            start = end + (2 if view[end : end + 2] == b"\r\n" else 1)
        if start:
            del self._buffer[:start]
        self._searched = max(0, len(self._buffer) - 1) if view else self._searched

    def _line(self, line: bytes, ended: bool = False) -> Iterator[dict[str, Any]]:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
                self._held += len(value)
            if self._held > LINE_BYTES:
                raise Setback("endless", f"the server sent an event of over {LINE_BYTES >> 20} MB: stopped reading")
            return
        data, self._data, self._held = self._data, [], 0
        if not data:
            return
        # Data over several lines is one text, unless every line is one of its own: some servers leave out the blank.
        parts = data if len(data) > 1 and all(_alone(d) for d in data) else [b"\n".join(data)]
        for part in parts:
            yield from self._event(part.strip(), ended)

    def _event(self, data: bytes, ended: bool) -> Iterator[dict[str, Any]]:
        if data == b"[DONE]":
            self.done = True
        elif data[:1] == b"{":
            try:
                event = parsed(data)
            except Setback:
                if ended:
                    return  # cut within this event: what misses its end is told by whoever waits for it
                raise
            self.events += 1
            yield event


def _alone(data: bytes) -> bool:
    data = data.strip()
    return data == b"[DONE]" or (data[:1] == b"{" and data[-1:] == b"}")


def parsed(data: bytes) -> dict[str, Any]:
    """A JSON object.

    Raises:
        Setback: `garbled`: it is none.
    """
    try:
        found = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise Setback("garbled", "the server sent a piece of its answer that is no JSON") from None
    if not isinstance(found, dict):
        raise Setback("garbled", "the server answered with JSON that is no completion")
    return found
