"""Which files of a run hold samples, and in which format: by name where it is clear, by first bytes where not."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING

from ..files import RunFile
from .rows import Source

if TYPE_CHECKING:
    from ...workspace import Workspace

FILES = 400  # files taken as a dataset
NUMBERS = ("megatron", "tokens", "array")  # kinds that hold token ids and no records

_PACKED = re.compile(r"\.(gz|zst|bz2|xz)$", re.IGNORECASE)
_KINDS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "tsv", ".parquet": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".tar": "tar", ".npy": "array", ".npz": "array", ".txt": "text",
    ".idx": "megatron", ".bin": "tokens", ".tokens": "tokens",
}  # fmt: skip
_TEXT = re.compile(r"(?i)^(train|valid|val|test|eval|corpus|dataset|data|input|text|wiki|dev)[\w.\-]*\.txt$")
_TOKENS = re.compile(r"(?i)(^|[/_.\-])(train|valid|val|test|eval|data|tokens?|corpus|shard|fineweb|openwebtext|part)")
_WEIGHTS = re.compile(r"(?i)model|optimizer|scheduler|random_states|rng|adapter|training_args|weights|grad")
_RESULTS = re.compile(rb'"(filtered_resps|doc_hash|resps)"\s*:')
_REPORT = re.compile(r"(?m)Traceback \(most|\b(ERROR|WARNING|INFO)\b|tensor\(\[|^\s*\w[\w ]*\s*[:=]\s*[\d.,]+\s*$")
_NO_TOKENS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x04", b"\x80\x05", b"PAR1", b"GGUF", b"lmdb")


def sources(ws: Workspace, path: str = "") -> list[Source]:
    """The datasets of the run, or of one file, folder or pattern of it; in the order of their names.

    Args:
        path: name of a file or folder inside the run, or a pattern with `*`. A file that is named so is read
            whatever role it plays otherwise.
    """
    named = [f for f in ws.files if matches(f.name, path)]
    found = [s for f in named if (s := _source(ws, f, bool(path)))]
    indexed = {s.file.name[: -len(".idx")] + ".bin" for s in found if s.kind == "megatron"}
    found = [s for s in found if s.file.name not in indexed]
    if len(found) > FILES:
        ws.tell(path or "data", f"{len(found) - FILES} of {len(found)} data files were not read")
    return found[:FILES]


def unopened(ws: Workspace, path: str = "") -> list[str]:
    """Files of records that were found and could not be opened or not read wholly, and why."""
    said = {path or "data"}
    kinds = ("jsonl", "csv", "tsv", "parquet", "arrow", "tar")
    return [
        f"{name}: {why}"
        for name, why in ws.skipped
        if name in said or (matches(name, path) and _KINDS.get(_suffix(name), "") in kinds)
    ]


def matches(name: str, path: str) -> bool:
    """Whether a file's name is what a user means by `path`: itself, a folder above it, a pattern, its last part."""
    if not path:
        return True
    path = path.rstrip("/")
    return name == path or name.startswith(path + "/") or name.endswith("/" + path) or fnmatch.fnmatchcase(name, path)


def _source(ws: Workspace, file: RunFile, named: bool) -> Source | None:
    base = _PACKED.sub("", file.name.rsplit("/", 1)[-1])
    suffix = _suffix(base)
    kind = _KINDS.get(suffix)
    if suffix in (".lock", ".incomplete") or file.good:
        return None
    if kind is None:
        return Source(file, "jsonl") if named and file.role in ("data", "log", "other") else None
    if kind in ("jsonl", "json", "csv", "tsv"):
        return Source(file, kind) if named or (file.role == "data" and not _results(ws, file)) else None
    if kind == "text":
        return Source(file, kind) if named or (_TEXT.match(base) and not _printed(ws, file)) else None
    if kind in ("tokens", "array"):
        return _numbers(ws, file, kind, base, named)
    head = ws.head(file) if kind == "megatron" else b""
    if kind == "megatron" and not head.startswith(b"MMIDIDX"):
        return None
    return Source(file, kind)


def _suffix(name: str) -> str:
    base = _PACKED.sub("", name.rsplit("/", 1)[-1])
    return "." + base.rsplit(".", 1)[-1].lower() if "." in base else ""


def _numbers(ws: Workspace, file: RunFile, kind: str, base: str, named: bool) -> Source | None:
    """A file of numbers that may be tokens: not weights, not a saved state."""
    if not named and (_WEIGHTS.search(base) or not _TOKENS.search(file.name)):
        return None
    if kind == "tokens" and ws.head(file).startswith(_NO_TOKENS):
        return None
    return Source(file, kind)


def _results(ws: Workspace, file: RunFile) -> bool:
    """Results of an evaluation, one a line: not samples to train on."""
    return bool(_RESULTS.search(ws.read(file, 64 << 10)))


def _printed(ws: Workspace, file: RunFile) -> bool:
    """Text that reports on something rather than being the data."""
    head = ws.text(file, 16 << 10)
    return bool(_REPORT.search(head))
