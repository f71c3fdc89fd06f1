"""Members of a tar shard (webdataset): listed without unpacking, samples that lack a part, pictures cut off."""

from __future__ import annotations

import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ... import deadline
from ..files import RunFile
from .media import HEAD, TAIL, fault_of, medium_of
from .rows import NO_LINE, Fault, Row
from .text_rows import Tell

if TYPE_CHECKING:
    from ...workspace import Workspace

MEMBERS = 1_000_000
MARK, KEPT = 512, 64 << 10  # bytes of the zeros that end an archive; bytes of the stream that are kept for them
TEXT = 1 << 20  # bytes of a text or JSON member that are read

_TEXTS = ("json", "txt", "cls", "caption", "text")
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError)


def archive_rows(ws: Workspace, file: RunFile, tell: Tell, wanted: Callable[[int], bool]) -> Iterator[Row]:
    """Samples of a shard: members of one key together, text parts read, other parts as their size in bytes."""
    number, key, parts = 0, "", {}
    stream = _Blocks(ws, file)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as opened:
            for count, member in enumerate(opened):
                deadline.check()
                if count >= MEMBERS:
                    tell(Fault(file, "not_read", f"only the first {MEMBERS} members were listed"))
                    break
                if not member.isfile():
                    continue
                name, _, suffix = _split(member.name)
                if name != key and parts:
                    if wanted(number):
                        yield Row(NO_LINE, parts, file, number, key, 0)
                    number, parts = number + 1, {}
                key = name
                if suffix in parts:
                    tell(Fault(file, "torn_records", f"{member.name} occurs twice in one sample", member=member.name))
                parts[suffix] = _part(opened, member, suffix, file, tell)
            else:
                if why := stream.ends(opened.offset):
                    tell(Fault(file, "corrupt", f"tar, after {key or 'nothing'}: {why}", member=key or "start"))
    except _BROKEN as e:
        said = (str(e).splitlines() or [type(e).__name__])[0][:200]
        tell(Fault(file, "corrupt", f"tar, after {key or 'nothing'}: {said}", member=key or "start"))
    if parts and wanted(number):
        yield Row(NO_LINE, parts, file, number, key, 0)


def _split(name: str) -> tuple[str, str, str]:
    folder, slash, base = name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    return f"{folder}{slash}{stem}", dot, suffix.lower()


def _part(opened: tarfile.TarFile, member: tarfile.TarInfo, suffix: str, file: RunFile, tell: Tell) -> Any:
    last = suffix.rsplit(".", 1)[-1]
    if member.size == 0:
        tell(Fault(file, "empty_member", f"{member.name} is empty", member=member.name))
        return ""
    if not (medium_of(member.name) or last in _TEXTS):
        return member.size
    stream = opened.extractfile(member)
    if stream is None:
        return member.size
    if last in _TEXTS:
        data = stream.read(TEXT)
        if last != "json":
            return data.decode(errors="replace").strip()
        value = _json(data)
        if value is None and data.strip() != b"null":
            tell(Fault(file, "torn_records", f"{member.name} is no JSON", member=member.name))
        return value
    head = stream.read(HEAD)
    tail, left = head, member.size - len(head)
    while left > 0 and (block := stream.read(min(left, 1 << 20))):
        left -= len(block)
        tail = (tail + block)[-TAIL:]
    if why := fault_of(member.name, member.size, head, tail):
        tell(Fault(file, "broken_media", f"{member.name}: {why}", member=member.name))
    return member.size


def _json(data: bytes) -> Any:
    try:
        return json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


class _Blocks(io.RawIOBase):
    """The unpacked blocks of a file as the stream that tarfile reads."""

    def __init__(self, ws: Workspace, file: RunFile) -> None:
        self._blocks = ws.blocks(file)
        self._rest = memoryview(b"")
        self._kept, self._count = b"", 0  # the last bytes given out, and how many there were in all

    def ends(self, offset: int) -> str:
        """Why the archive does not end at `offset`, where the listing stopped; empty where its end mark is there."""
        start = offset - (self._count - len(self._kept))
        mark = self._kept[start : start + MARK] if start >= 0 else b""
        if len(mark) < MARK:
            return "no end mark: cut off, or still being written"
        return "a header that is none" if mark.strip(b"\0") else ""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        """As many bytes as are at hand, none only at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        part = self._rest[: len(into)]
        into[: len(part)] = part
        self._rest = self._rest[len(part) :]
        self._kept = (self._kept + bytes(part))[-KEPT:]
        self._count += len(part)
        return len(part)
