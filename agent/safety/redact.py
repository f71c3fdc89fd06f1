"""The one choke point for secrets: what leaves the machine or is made to be passed on goes through here.

A secret becomes a placeholder that keeps its identity (`<SECRET:hf:1>`), so that two uses of one key still read
as the same key. Kinds are rows of `knowledge/secrets.yaml`; adding one is adding a row with its proof to
`tests/safety/redaction_corpus.py`. Lines stay lines: of a secret that spans several, each line keeps its end.

All patterns are of re2, which takes linear time on whatever a run prints, and the text is gone through in windows of
bounded size. A first pass with all patterns as one finds the lines where any of them matches; only these are looked
at closely.
"""

from __future__ import annotations

import base64
import binascii
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

from .secret_kinds import Kind, Kinds, compiled, drawn, goes_on, kinds, unfinished

# ----------
# Texts seen without what may hide a secret in them: colour codes, invisible characters, escapes, wrapped lines.
#
# A view is a text made from another by leaving out or rewriting stretches of it. It remembers where each byte came
# from, so that what is found in a view can be taken out of the text itself, and all else there stays as it was.


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


# ----------
# The one choke point for secrets: what leaves the machine or is made to be passed on goes through here.
#
# A secret becomes a placeholder that keeps its identity (`<SECRET:hf:1>`), so that two uses of one key still read
# as the same key. Kinds are rows of `knowledge/secrets.yaml`; adding one is adding a row with its proof to
# `tests/safety/redaction_corpus.py`. Lines stay lines: of a secret that spans several, each line keeps its end.
#
# All patterns are of re2, which takes linear time on whatever a run prints, and the text is gone through in windows of
# bounded size. A first pass with all patterns as one finds the lines where any of them matches; only these are looked
# at closely.

_PLACEHOLDER = re.compile(rb"<SECRET:[a-z]+:\d+>")
WINDOW, OVERLAP = 32_768, 8_192  # bytes; a secret of up to `OVERLAP` lies whole in some window
ROUNDS = 8
LEAST_KNOWN = 8  # characters of a secret that is looked for without what made it known
_ARMOUR = re.compile(rb"[A-Za-z0-9+/]{16,}={0,2}")  # of a line of a key block
MOST_LINES = 8  # that one secret is put together from


@dataclass(slots=True)
class Found:
    """A secret in a text: where its pieces stand, its kind and the kind's rank (low is more telling)."""

    pieces: list[tuple[int, int]]
    secret: bytes
    kind: str
    rank: int

    @property
    def start(self) -> int:
        return self.pieces[0][0]

    @property
    def end(self) -> int:
        return self.pieces[-1][1]


@dataclass(slots=True)
class Redactor:
    """Takes secrets out of any number of texts and counts them.

    Attributes:
        count: how many times a secret was taken out.
        found: kind and number of each distinct secret; the secrets themselves are not shown.
    """

    count: int = 0
    _known: dict[bytes, str] = field(default_factory=dict)
    _sought: dict[bytes, tuple[bytes, str]] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def redact(self, text: str) -> str:
        """The text with a placeholder for each secret; the same secret gets the same placeholder.

        The result has as many lines as the text. Redacting it once more changes nothing.
        """
        data = before = text.encode("utf-8", "surrogatepass")
        for _ in range(ROUNDS):  # what a secret hid from a pattern comes to light once it is gone
            secrets = self._secrets(data)
            if not secrets:
                break
            data = self._replaced(data, secrets)
        return text if data is before else data.decode("utf-8", "surrogatepass")

    @property
    def found(self) -> dict[str, int]:
        """How many distinct secrets of each kind."""
        return dict(self._numbers)

    def _secrets(self, data: bytes) -> list[Found]:
        """Secrets in order, none touching another; those learnt before too."""
        table = kinds()
        plain, wrapped = views(data, table.broken)
        found = [f for view in plain for f in _in_view(view, table)]
        found += [f for view in wrapped for f in _over_lines(view, table, found)]
        found += [f for view in (plain[-1], *wrapped[-1:]) for f in _in_base64(view, table)]
        for one in list(found):
            self._learn(one)
        found += self._again(data)
        return _apart(data, found)

    def _learn(self, one: Found) -> None:
        """Look for a secret from now on wherever it stands, if it cannot be an ordinary word."""
        if b"\n" in one.secret:  # a block: its lines without the indent, prefix or end that they have here
            pieces = _ARMOUR.findall(one.secret)
        else:
            pieces = [one.secret] if len(one.secret) >= LEAST_KNOWN and b"-----" not in one.secret else []
        for piece in pieces:
            if drawn(piece):
                self._sought.setdefault(piece, (one.secret, one.kind))

    def _again(self, data: bytes) -> Iterator[Found]:
        """Secrets known from elsewhere."""
        for text, (secret, kind) in self._sought.items():
            at = data.find(text)
            while at >= 0:
                yield Found([(at, at + len(text))], secret, kind, len(kinds().rows) + 1)
                at = data.find(text, at + len(text))

    def _replaced(self, data: bytes, secrets: list[Found]) -> bytes:
        """The data with a placeholder at the start of each secret, and its further pieces taken out."""
        parts, at = [], 0
        for one in secrets:
            if one.secret not in self._known:
                self._numbers[one.kind] = self._numbers.get(one.kind, 0) + 1
                self._known[one.secret] = f"<SECRET:{one.kind}:{self._numbers[one.kind]}>"
            self.count += 1
            shown = self._known[one.secret].encode()
            for start, end in one.pieces:
                parts += [data[at:start], shown, b"\n" * data.count(b"\n", start, end)]
                shown, at = b"", end
        return b"".join([*parts, data[at:]])


def _in_view(view: View, table: Kinds) -> Iterator[Found]:
    """Secrets of all kinds in a view of a text."""
    for start, end in _regions(view.data, table):
        for rank, kind in enumerate(table.rows):
            for first, last in kind.matches(view.data, start, end):
                if not _cut(view.data, first, last, end):
                    yield Found(view.pieces(first, last), view.data[first:last], kind.name, rank)
    for rank, kind in enumerate(table.rows):
        if kind.long and b"-----BEGIN" in view.data:
            for first, last in kind.matches(view.data, 0, len(view.data)):
                yield Found(view.pieces(first, last), view.data[first:last], kind.name, rank)


def _cut(data: bytes, first: int, last: int, end: int) -> bool:
    """Whether a window's end cut a value off that the next window holds whole: half a word is not judged."""
    return last == end < len(data) and data[end - 1] != 10 and first >= end - OVERLAP // 2


def _over_lines(view: View, table: Kinds, others: list[Found]) -> Iterator[Found]:
    """Secrets of a view with lines joined that go over more than one of them."""
    begins = sorted({f.start for f in others})
    for start, end in _regions(view.data, table):
        for rank, kind in enumerate(table.rows):
            for first, last in kind.matches(view.data, start, end, glued=True):
                cut = _own_end(view, kind, first, last, set(begins))
                if len(pieces := view.pieces(first, cut)) > 1 and not _cut(view.data, first, last, end):
                    yield Found(pieces, view.data[first:cut], kind.name, rank)


def _own_end(view: View, kind: Kind, first: int, last: int, begins: set[int]) -> int:
    """Where a secret that was put together from several lines ends: what else the next line says is not of it."""
    text, pieces = view, view.pieces(first, last)[:MOST_LINES]
    while text.parent is not None:
        text = text.parent
    end = first + pieces[0][1] - pieces[0][0]
    quotes = [c for c in view.data[max(first - 9, 0) : first] if c in b"\"'"]  # what closes one of these ends the value
    for (_, before), (start, stop) in pairwise(pieces):
        further = end + stop - start
        rest, after = view.data[end:further], view.data[further : further + 1]
        needed = kind.token and not kind.whole(view.data[first:end])
        needed |= kind.length > end - first or unfinished(view.data[first:end], view.data[first:last])
        needed |= after != b"" and after[0] in quotes
        needed |= text.data.startswith((b"\\\n", b"\\\r\n"), before)  # a shell's way to say that the word goes on
        if start in begins or not (needed or (goes_on(rest) and after not in (b"=", b":", b"(", b"["))):
            break
        end = further
    return end


def _in_base64(view: View, table: Kinds) -> Iterator[Found]:
    """Secrets that tell themselves by their form, within runs of base64."""
    for start, end, held in unpacked(view.data, table.encoded):
        if not table.tokens.search(held):
            continue
        for rank, kind in enumerate(table.rows):
            for first, last in kind.matches(held, 0, len(held)) if kind.token else ():
                yield Found(view.pieces(start, end), held[first:last], kind.name, rank)


def _regions(data: bytes, table: Kinds) -> list[tuple[int, int]]:
    """Stretches of whole lines where some kind matches, with two lines after; within one window each."""
    found: list[tuple[int, int]] = []
    for begin in range(0, max(len(data) - OVERLAP, 1), WINDOW - OVERLAP):
        limit, at = min(begin + WINDOW, len(data)), begin
        while at < limit and (match := table.any.search(data, at, limit)):
            start, end = data.rfind(b"\n", begin, match.start()) + 1 or begin, match.end()
            for _ in range(3):
                end = data.find(b"\n", end, limit) + 1 or limit
            found.append((start, end))
            at = end
    return found


def _apart(data: bytes, found: list[Found]) -> list[Found]:
    """Findings that overlap made one: named by the most telling kind among those that hold all of it."""
    taken = [match.span() for match in _PLACEHOLDER.finditer(data)] if found else []
    found = [f for f in found if f.pieces and not _touches(taken, f.start, f.end)]
    found.sort(key=lambda f: (f.start, -f.end))
    groups: list[list[Found]] = []
    reach = -1
    for one in found:
        if one.start < reach:
            groups[-1].append(one)
        else:
            groups.append([one])
        reach = max(reach, one.end)
    return [_one(data, group) for group in groups]


def _touches(taken: list[tuple[int, int]], start: int, end: int) -> bool:
    """Whether any of the stretches, which are in order, reaches into this one."""
    at = bisect_left(taken, (start, start))
    return (at < len(taken) and taken[at][0] < end) or (at > 0 and taken[at - 1][1] > start)


def _one(data: bytes, group: list[Found]) -> Found:
    """One finding for a group of those that overlap."""
    start, end = group[0].start, max(f.end for f in group)
    whole = [f for f in group if (f.start, f.end) == (start, end)]
    if whole:
        return min(whole, key=lambda f: (f.rank, len(f.pieces)))
    best = min(group, key=lambda f: f.rank)
    pieces = sorted(piece for f in group for piece in f.pieces)
    merged = [pieces[0]]
    for first, last in pieces[1:]:
        if first <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return Found(merged, b"".join(data[a:b] for a, b in merged), best.kind, best.rank)
