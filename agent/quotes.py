"""The last look before evidence counts: does the file really say that, there?

A reader that is off by a line would put an invented quotation under a true verdict. Looking again costs a seek for
each line, and what does not hold is left out and told as our bug.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from .errors import ParseError
from .reading.files import open_regular
from .types import LINE_CAP, Evidence
from .workspace import Workspace


def verified(evidence: list[Evidence], workspace: Workspace) -> tuple[list[Evidence], int]:
    """The evidence whose quoted lines stand where they say, and how many do not.

    Packed and UTF-16 files are passed: their offsets count decoded bytes, and reading them again to compare would
    cost a second pass.
    """
    paths = {f.name: f.path for f in workspace.files}
    kept: list[Evidence] = []
    opened: dict[str, BinaryIO | None] = {}
    try:
        for e in evidence:
            if e.kind != "line" or e.offset is None or e.file not in paths or _stands(e, paths[e.file], opened):
                kept.append(e)
    finally:
        for stream in opened.values():
            if stream is not None:
                stream.close()
    return kept, len(evidence) - len(kept)


def _stands(e: Evidence, path: Path, opened: dict[str, BinaryIO | None]) -> bool:
    name = e.file or ""
    if name not in opened:
        opened[name] = _open(path)
    stream = opened[name]
    if stream is None or e.offset is None:
        return True
    stream.seek(max(0, e.offset - 1))
    data: bytes = stream.read(LINE_CAP * 2 + 1)
    if e.offset:
        before, data = data[:1], data[1:]
        if before != b"\n":
            return False
    line = data.split(b"\n", 1)[0][:LINE_CAP].decode(errors="replace").rstrip("\r")
    return line.startswith(e.text.rstrip("\r\ufffd"))


def _open(path: Path) -> BinaryIO | None:
    try:
        stream = open_regular(path)
        head = stream.read(4)
    except (ParseError, OSError):
        return None
    packed = head[:2] in (b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff") or head == b"\x28\xb5\x2f\xfd" or b"\0" in head
    if packed:
        stream.close()
        return None
    return stream
