"""Environment variables that hold lists: a new value joins what stands there, and nothing of it is lost."""

from __future__ import annotations

import re

from .model import Unplaced

ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SETS = ("NCCL_DEBUG_SUBSYS",)
PATHS = ("LD_PRELOAD", "LD_LIBRARY_PATH")
_PARTS = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")


def merged(name: str, old: str, new: str) -> str:
    """The value that holds both.

    Args:
        old: what stands in the file, without its quotes.

    Raises:
        Unplaced: what stands there is filled in from elsewhere, so that its parts cannot be told.
    """
    if name in ALLOCATORS:
        return _by_key(_plain(old), new)
    if name in _SETS:
        return _as_set(_plain(old), new)
    if name in PATHS:
        return _in_front(old, new)
    return new


def _plain(old: str) -> str:
    if "$" in old or "`" in old:
        raise Unplaced(f"`{old[:60]}` is filled in from elsewhere, so nothing can be added to it")
    return old


def _by_key(old: str, new: str) -> str:
    """`a:b,c:d`: each key of the new text takes its place, the other keys stay."""
    parts = [part.strip() for part in _PARTS.findall(old) if part.strip()]
    keys = [part.partition(":")[0] for part in parts]
    for part in (p.strip() for p in _PARTS.findall(new)):
        key = part.partition(":")[0]
        if key in keys:
            parts[keys.index(key)] = part
        else:
            parts.append(part)
            keys.append(key)
    return ",".join(parts)


def _as_set(old: str, new: str) -> str:
    there = [part.strip() for part in old.split(",") if part.strip()]
    if "ALL" in there:
        return old
    kept = [part for part in there if part.removeprefix("^") not in new.split(",") or part[:1] != "^"]
    return ",".join([*kept, *(part for part in new.split(",") if part not in there)])


def _in_front(old: str, new: str) -> str:
    there = [re.sub(r"\$\{[^}]*\}", "", part) for part in re.findall(r"(?:\$\{[^}]*\}|[^: ])+", old)]
    added = [part for part in new.split(":") if part and part not in there]
    return ":".join([*added, old]) if old else ":".join(added)


def alone(name: str, value: str) -> str:
    """The text of a value where nothing stands in the file: a search path keeps what the shell already holds."""
    if name in PATHS:
        return f'"{value}${{{name}:+:${name}}}"'
    return ""
