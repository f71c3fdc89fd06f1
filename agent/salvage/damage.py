"""What is wrong with a downloaded file: gone, empty, a pointer, an error page, cut short, or other bytes than meant."""

from __future__ import annotations

import hashlib
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from ..errors import ParseError, UsageError
from ..reading.checkpoints.state import state_of
from ..reading.datasets.find import sources
from ..reading.datasets.sampling import Look, stream
from ..reading.files import RunFile
from ..workspace import Workspace
from .copying import Progress
from .packing import unpacked

HEAD = 2048
_STATES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
_RECORDS = (".parquet", ".arrow", ".tar")
_PACKED = (".gz", ".zst", ".bz2", ".xz")
_POINTER = re.compile(
    rb"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\nsize (\d{1,18})\n"
)
_PAGE = re.compile(rb"\A\s*(?:<!doctype html|<html|<\?xml[^>]*>\s*<(?:error|html))", re.IGNORECASE)
_REFUSAL = re.compile(
    rb"\A(?:Entry not found|Repository not found|Invalid username or password|Access to (?:model|dataset)|Not Found"
    rb"|\{\"(?:error|message)\")",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a git-lfs pointer stands for."""

    sha256: str
    size: int


def pointer_of(path: Path) -> Pointer | None:
    """The pointer that a file is; None where it is none."""
    m = _POINTER.match(_head(path))
    return Pointer(m[1].decode(), int(m[2])) if m else None


def damage(path: Path) -> str:
    """What is wrong by existence, size, first bytes and structure; empty where nothing is seen."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) and not path.exists():
            return f"a link to {path.readlink()}, which is not there"
        there = path.stat()
    except OSError:
        return "is not there"
    if not stat.S_ISREG(there.st_mode):
        return "no regular file"
    if there.st_size == 0:
        return "is empty"
    if path.name.endswith((".incomplete", ".aria2", ".crdownload", ".part")):
        return f"a download that never ended, {there.st_size} bytes so far"
    if found := pointer_of(path):
        return f"a git-lfs pointer of {there.st_size} bytes instead of the file of {found.size} bytes"
    return _page(path) or _structure(path)


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as f:
            return f.read(HEAD)
    except OSError:
        return b""


def _page(path: Path) -> str:
    """Whether a server's words stand where data should."""
    head, suffix = _head(path), path.suffix.lower()
    if suffix not in (".html", ".htm", ".xml", ".svg") and _PAGE.match(head):
        return "a web page instead of data: a download that needed a login, or a wrong address"
    if suffix not in (".json", ".jsonl", ".txt", ".md") and len(head) < HEAD and _REFUSAL.match(head):
        said = head.splitlines()[0].decode(errors="replace")[:80]
        return f"a server's refusal instead of data: {said}"
    return ""


def _structure(path: Path) -> str:
    """What the format's own checks say; tensors and cells are not read."""
    name = path.name.lower()
    if name.endswith(_PACKED):
        try:
            torn = any(block is None for block in unpacked(path))
        except UsageError:  # text in UTF-16, which is whole as far as it was read
            torn = False
        return "the packed file is cut off or broken" if torn else ""
    if not name.endswith((*_STATES, *_RECORDS)):
        return ""
    ws = Workspace([path], live=False, may_be_empty=True)
    file = next(iter(ws.files), None)
    if file is None:
        return next((why for _, why in ws.skipped), "")
    if name.endswith(_STATES):
        problems = state_of(ws, file).problems
        return next((p.text for p in problems if p.kind not in ("unknown_format", "dangerous_globals")), "")
    return _records(ws, file)


def _records(ws: Workspace, file: RunFile) -> str:
    """What breaks off a pass over a table or a shard in which no record is wanted."""
    for source in sources(ws, file.name):
        one = Look(source, within=range(0))
        try:
            for _ in stream(ws, source, one):
                pass
        except ParseError as e:
            return str(e)
        if found := next((f.text for f in one.faults if f.kind == "corrupt"), ""):
            return found
    return ""


def other_bytes(path: Path, digest: str, progress: Progress) -> str:
    """Whether the content is not the one a digest was made of: SHA-256, or git's SHA-1 of small files."""
    if len(digest) == 64:
        known = hashlib.sha256()
    else:
        known = hashlib.sha1(usedforsecurity=False)
        known.update(b"blob %d\0" % path.stat().st_size)
    with path.open("rb") as f:
        while block := f.read(4 << 20):
            known.update(block)
            progress(len(block))
    if known.hexdigest() == digest:
        return ""
    return f"other bytes than those meant: {known.name} {known.hexdigest()[:16]}..., not {digest[:16]}..."
