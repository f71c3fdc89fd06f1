"""Texts seen without what may hide a secret in them: colour codes, invisible characters, escapes, wrapped lines.

A view is a text made from another by leaving out or rewriting stretches of it. It remembers where each byte came
from, so that what is found in a view can be taken out of the text itself, and all else there stays as it was.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from .secret_kinds import compiled

# Escape sequences as they are and as they are printed; zero-width, bidi and other characters that nobody sees.
_INVISIBLE = re.compile(
    rb"(?:\x1b|\\x1b|\\033|\\e|\\u001b|\^\[)"
    rb"(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9])"
    rb"|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xc2\xad|\xcd\x8f|\xe1\xa0\x8e|\xef\xb8[\x80-\x8f]"
    rb"|\\u(?:200[b-f]|feff|2060|00ad)|[\x00-\x08\x0e-\x1a\x7f]"
)
_ESCAPED = re.compile(
    rb"%(?:25)?[2-7][0-9A-Fa-f]|\\+u00[2-7][0-9A-Fa-f]|\\+x[2-7][0-9A-Fa-f]|\\+[nrt\"'/]"
    rb"|&(?:amp|quot|apos|lt|gt|#\d{2,3}|#x[0-9a-fA-F]{2});"
)
# The same for a quick look whether there is any.
_ANY_INVISIBLE = (
    r"(?:\x1b|\\x1b|\\033|\\e|\\u001b|\^\[)[\[\]()]|\xe2\x80[\x8b-\x8f\xaa-\xae]|\xe2\x81[\xa0-\xaf]|\xef\xbb\xbf|\xc2\xad"
    r"|\xcd\x8f|\xe1\xa0\x8e|\xef\xb8[\x80-\x8f]|\\u(?:200|feff|2060|00ad)|[\x00-\x08\x0e-\x1a\x7f]"
)
_ANY_ESCAPED = r"%(?:25)?[2-7][0-9A-Fa-f]|\\[unrtx\"'/]|&[a-z#]"
_NAMED = {b"amp": b"&", b"quot": b'"', b"apos": b"'", b"lt": b"<", b"gt": b">"}
_WHITE = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}

# Where a long word was broken: `\` and a new line, a wrapped line with its margin or its log prefix, `"one"  "two"`.
_BROKEN = re.compile(
    rb"(?<=[\w=/+.~%@:-])(?:"
    rb"[ \t]*\\?\r?\n[ \t]*"
    rb"(?:\[[\w .:/-]{1,40}\]:?[ \t]+|\([\w= ,.-]{1,40}\)[ \t]+|[\w.-]{1,30}[ \t]?\|[ \t]+|[>|+#][ \t]+)?"
    rb"|[ \t]*(?:\xe2\x94\x82|\|)[ \t]*\r?\n[ \t]*(?:\xe2\x94\x82|\|)[ \t]*"
    rb"|[\"'][ \t]*[+\\]?[ \t]*\r?\n?[ \t]*[\"']|[\"']"
    rb")(?=[\w=/+.~%@:-])"
)
LONG = 4096  # bytes of a run of base64 that is tried at all four places where it may begin
FURTHER = 800  # bytes behind a break in which a secret may go on


@dataclass(slots=True)
class View:
    """A text as bytes and, for each stretch of it, the stretch of the parent view that it came from.

    Attributes:
        data: the bytes of the view.
        parent: the view it was made from; None for the text itself.
        starts: where stretches begin in `data`; `origins`: the same stretches in the parent, as start and end.
        copied: whether a stretch stands in the parent byte by byte.
    """

    data: bytes
    parent: View | None = None
    starts: list[int] = field(default_factory=list)
    origins: list[tuple[int, int]] = field(default_factory=list)
    copied: list[bool] = field(default_factory=list)

    def pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        """The stretches of the text itself that bytes `start` to `end` of this view came from."""
        if self.parent is None:
            return [(start, end)]
        found: list[tuple[int, int]] = []
        for at in range(max(bisect_right(self.starts, start) - 1, 0), len(self.starts)):
            if (here := self.starts[at]) >= end:
                break
            first, last = self.origins[at]
            if self.copied[at]:
                first, last = max(first, first + start - here), min(last, first + end - here)
            if last > first:
                found += self.parent.pieces(first, last)
        return _joined(found)

    def without(
        self,
        pattern: re.Pattern[bytes],
        instead: Callable[[re.Match[bytes]], bytes],
        within: Iterable[tuple[int, int]] = ((0, -1),),
    ) -> View | None:
        """The view with each match of `pattern` rewritten; None where nothing matches."""
        view, parts, size, at = View(b"", self), [], 0, 0

        def add(part: bytes, origin: tuple[int, int], copied: bool) -> int:
            if part:
                parts.append(part)
                view.starts.append(size)
                view.origins.append(origin)
                view.copied.append(copied)
            return size + len(part)

        stretches = [(start, end if end >= 0 else len(self.data)) for start, end in within]
        for match in chain.from_iterable(pattern.finditer(self.data, *stretch) for stretch in stretches):
            size = add(self.data[at : match.start()], (at, match.start()), True)
            size = add(instead(match), match.span(), False)
            at = match.end()
        if not at:
            return None
        add(self.data[at:], (at, len(self.data)), True)
        view.data = b"".join(parts)
        return view


def views(data: bytes, broken: Any) -> tuple[list[View], list[View]]:
    """The text without its disguises, and the same with lines joined behind each match of `broken`."""
    plain = [View(data)]
    invisible, escaped = compiled(_ANY_INVISIBLE), compiled(_ANY_ESCAPED)
    for pattern, any_of, instead in ((_INVISIBLE, invisible, _nothing), (_ESCAPED, escaped, _meant)) * 2:
        if any_of.search(plain[-1].data) and (view := plain[-1].without(pattern, instead)) is not None:
            if view.data == plain[-1].data:
                continue
            plain.append(view)
    wrapped = plain[-1].without(_BROKEN, _nothing, _stretches(plain[-1].data, broken))
    return plain, [] if wrapped is None else [wrapped]


def _stretches(data: bytes, broken: Any) -> list[tuple[int, int]]:
    """Where breaks are to be looked at: from each match on, as far as a secret may reach."""
    found: list[tuple[int, int]] = []
    for match in broken.finditer(data):
        start, end = match.start(), min(match.end() + FURTHER, len(data))
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def unpacked(data: bytes, encoded: Any) -> Iterator[tuple[int, int, bytes]]:
    """Runs of base64 that match: start, end and what they hold, by each way to cut them into fours."""
    for match in encoded.finditer(data):
        run = match[0].translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
        for shift in range(4 if len(run) <= LONG else 1):
            cut = run[shift:]
            cut = cut[: len(cut) - 1] if len(cut) % 4 == 1 else cut
            try:
                yield match.start() + shift, match.end(), base64.b64decode(cut + b"=" * (-len(cut) % 4))
            except (binascii.Error, ValueError):
                continue


def _nothing(_: re.Match[bytes]) -> bytes:
    return b""


def _meant(match: re.Match[bytes]) -> bytes:
    """The character that an escape stands for."""
    escape = match[0]
    if escape.startswith(b"&"):
        name = escape[1:-1]
        if not name.startswith(b"#"):
            return _NAMED[name]
        code = int(name[2:], 16) if name[1:2] in b"xX" else int(name[1:])
        return bytes([code]) if 32 <= code < 127 else escape
    last = escape[-1:]
    if escape.startswith(b"\\") and escape.strip(b"\\") == last:
        return _WHITE.get(last, last)
    code = int(escape[-2:], 16)
    return bytes([code]) if code < 127 else escape


def _joined(pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same stretches in order, those that touch made one."""
    found: list[tuple[int, int]] = []
    for start, end in pieces:
        if found and found[-1][1] >= start:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found
