"""What a run was doing when it failed, from the frames of a traceback and `phases.yaml`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from ..playbook import KNOWLEDGE
from .failure import Failure, Frame
from .patterns import searcher

_LIBRARY = re.compile(r"(?:site|dist)-packages/([A-Za-z_]\w*)|/lib/python3(?:\.\d+)?/(?!site-|dist-)([A-Za-z_]\w*)")
_FOREIGN = re.compile(
    r"site-packages|dist-packages|/lib/python\d|^<frozen|^<string>|<unknown>|<native>|^[\w.+\-]+\.(?:so|dylib)"
)


_ENVIRONMENT = re.compile(r"^<frozen os>$|/lib/python[\d.]+/os\.py$")
_ENTRY = re.compile(r"(?:^|[/\\])(?:bin|Scripts)[/\\][\w.+-]+$")


@dataclass(frozen=True, slots=True)
class _Phase:
    name: str
    functions: frozenset[str]
    paths: tuple[str, ...]
    code: tuple[Any, ...]
    exceptions: frozenset[str]


@cache
def _phases() -> tuple[_Phase, ...]:
    raw = yaml.load(
        (KNOWLEDGE / "phases.yaml").read_text(encoding="utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    )
    return tuple(
        _Phase(
            name,
            frozenset(map(str, row.get("function", ()))),
            tuple(row.get("path", ())),
            tuple(p for p in map(searcher, row.get("code", ())) if p is not None),
            frozenset(row.get("exception", ())),
        )
        for name, row in raw.items()
    )


def phases_of(failure: Failure) -> list[tuple[str, Frame | None]]:
    """The phases that a failure's frames tell, innermost first, each with the frame that tells it.

    A frame's function tells more than its code, and its code more than where its file lies.
    """
    told: dict[str, Frame | None] = {}
    for frame in reversed(failure.frames):
        for name in _of_frame(frame):
            told.setdefault(name, frame)
    if failure.name:
        for phase in _phases():
            if failure.name in phase.exceptions:
                told.setdefault(phase.name, None)
    return list(told.items())


def _of_frame(frame: Frame) -> Iterator[str]:
    if _ENVIRONMENT.search(frame.path):  # a variable that is looked up is no record of a data set
        return
    function = frame.function.rpartition(".")[2]
    for phase in _phases():
        if function in phase.functions:
            yield phase.name
            return
    for phase in _phases():
        if any(p.search(frame.code) for p in phase.code):
            yield phase.name
            return
    path = frame.path.replace("\\", "/")
    for phase in _phases():
        if any(part in path for part in phase.paths):
            yield phase.name
            return


def library_of(failure: Failure) -> tuple[str, Frame] | None:
    """The package of the innermost frame that lies in a library."""
    for frame in reversed(failure.frames):
        if m := _LIBRARY.search(frame.path):
            return (m[1] or m[2]), frame
    return None


def user_frame(failure: Failure) -> Frame | None:
    """The innermost frame in the user's own code."""
    return next((f for f in reversed(failure.frames) if not (_FOREIGN.search(f.path) or _is_entry(f))), None)


def _is_entry(frame: Frame) -> bool:
    """Whether a frame is the console script that an installed package puts into bin/."""
    return bool(_ENTRY.search(frame.path)) and frame.code.startswith(
        ("sys.exit(", "raise SystemExit(", "load_entry_point(")
    )
