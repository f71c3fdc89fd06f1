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
TEXT = 1 << 20  # bytes of a text or JSON member that are read

_TEXTS = ("json", "txt", "cls", "caption", "text")
_BROKEN = (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError)


def archive_rows(ws: Workspace, file: RunFile, tell: Tell, wanted: Callable[[int], bool]) -> Iterator[Row]:
    """Samples of a shard: members of one key together, text parts read, other parts as their size in bytes."""
    number, key, parts = 0, "", {}
    try:
        with tarfile.open(fileobj=_Blocks(ws, file), mode="r|") as opened:
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
        return _json(data) if last == "json" else data.decode(errors="replace").strip()
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

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        """As many bytes as are at hand, none only at the end."""
        if not self._rest:
            self._rest = memoryview(next(self._blocks, b""))
        part = self._rest[: len(into)]
        into[: len(part)] = part
        self._rest = self._rest[len(part) :]
        return len(part)
