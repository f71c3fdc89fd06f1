"""Images and sounds by their bytes: empty, cut off, or not what their name says. Nothing is decoded."""

from __future__ import annotations

import re

HEAD, TAIL = 64, 64  # bytes looked at

_MAGIC: dict[str, tuple[bytes, ...]] = {
    "jpg": (b"\xff\xd8\xff",), "jpeg": (b"\xff\xd8\xff",), "png": (b"\x89PNG\r\n\x1a\n",), 
    "gif": (b"GIF87a", b"GIF89a"),
    "bmp": (b"BM",), "webp": (b"RIFF",), "wav": (b"RIFF", b"RF64"), "flac": (b"fLaC",), "ogg": (b"OggS",),
    "mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2", b"\xff\xfa"), "tif": (b"II*\0", b"MM\0*"),
    "tiff": (b"II*\0", b"MM\0*"), "npy": (b"\x93NUMPY",),
}  # fmt: skip
_SUFFIX = re.compile(r"\.(\w+)$")


def medium_of(name: str) -> str:
    """The kind of picture or sound that a name claims; empty for anything else."""
    m = _SUFFIX.search(name.lower())
    return m[1] if m and m[1] in _MAGIC else ""


def fault_of(name: str, size: int, head: bytes, tail: bytes) -> str:
    """What is wrong with a picture or sound; empty where nothing is seen.

    Args:
        size: bytes of it.
        head: its first `HEAD` bytes.
        tail: its last `TAIL` bytes.
    """
    kind = medium_of(name)
    if not kind:
        return ""
    if size == 0:
        return "empty file"
    if not head.strip(b"\0"):
        return "only zero bytes at its start"
    if not head.startswith(_MAGIC[kind]):
        return f"no {kind}: it begins with {head[:8].hex(' ')}"
    if kind in ("jpg", "jpeg") and b"\xff\xd9" not in tail:
        return "cut off: a JPEG without its end mark"
    if kind == "png" and b"IEND" not in tail:
        return "cut off: a PNG without its end chunk"
    if kind == "gif" and not tail.rstrip(b"\0").endswith(b";"):
        return "cut off: a GIF without its trailer"
    if kind in ("wav", "webp") and head[:4] == b"RIFF":
        return _riff(kind, size, head)
    return ""


def _riff(kind: str, size: int, head: bytes) -> str:
    said = int.from_bytes(head[4:8], "little") + 8
    if said > size + 1 and said < 0xFFFFFF00:
        return f"cut off: {size} of {said} bytes"
    at = head.find(b"data")
    if kind == "wav" and 0 < at <= HEAD - 8 and int.from_bytes(head[at + 4 : at + 8], "little") == 0:
        return "a sound of length zero"
    return ""
