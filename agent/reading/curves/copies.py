"""The same points told twice: by a log and by what a logger kept beside it, by a rank's log and by the joined one.

A copy stays, as its curves belong together; but a fact is told of one of them, and a log that names no steps gets those
of the copy that does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

import numpy as np

from ...core.errors import ParseError
from ..run.clocks import stamp_of
from ..run.files import RunFile, open_regular
from ..run.lines import strip
from .series import Series

_LOOKED = 256  # points of a pair that are compared
_ABOUT = 0.05  # share by which a print of two figures may differ
_FLOAT = 1e-6  # what 32 bits hold
_HEAD = 4096  # bytes of a line
_ALIKE = 64  # series of one metric that are compared with one another
_STRETCH = 5  # points of one attempt, by which it is found in the history of all
_FINAL = 1  # evaluation after the last step, which a log prints and a trainer's state does not hold
_SAVE = re.compile(r"^(?:checkpoint|ckpt|global_?step|iter|step)[-_]?\d+$")
_STORES = ("wandb/", "mlruns/", "checkpoint-", "lightning_logs/", "global_step")


def mark_copies(series: Iterable[Series]) -> None:
    """Find the copies of each curve, set `copy_of`, and give steps to what has none."""
    alike: dict[tuple, list[Series]] = defaultdict(list)
    for s in series:
        if s.finite.any():
            alike[(s.file.run, s.file.good, s.metric, s.rank)].append(s)
    for members in alike.values():
        ranked = sorted(members[:_ALIKE], key=_rank)
        for i, s in enumerate(ranked):
            for first in ranked[:i]:
                if first.copy_of is not None or not _two_tellings(first, s):
                    continue
                if (at := _same(first, s)) is not None:
                    s.copy_of = first
                    _share_steps(first, s, at)
                    break


def _rank(s: Series) -> tuple[int, bool, bool]:
    """The fullest first, then what stands in a log, then in a file of the run itself."""
    return -s.count, s.file.role != "log", _stored(s.file)


def _stored(file: RunFile) -> bool:
    return any(part in f"/{file.name}" for part in _STORES)


def _two_tellings(one: Series, other: Series) -> bool:
    """Whether two files may hold one history: of two plain logs or tables each is a history of its own."""
    a, b = one.file, other.file
    if a.name == b.name or (one.variant != other.variant and one.variant and other.variant):
        return False
    if a.attempt is not None and b.attempt is not None and a.attempt != b.attempt:
        return False
    if _saves(a) == _saves(b) != "":
        return True
    if _kind(a) != _kind(b) or (a.rank is None) != (b.rank is None) or _stored(a) != _stored(b):
        return True
    return _kind(a) == "log" and _one_print(one, other)


def _saves(file: RunFile) -> str:
    """Where a run keeps its saves, each with its history until then; empty for what lies in no `checkpoint-250`."""
    folder = PurePosixPath(file.name).parent
    return f"{folder.parent}/{file.path.name}" if _SAVE.search(folder.name) else ""


def _one_print(one: Series, other: Series) -> bool:
    """Whether the last lines of two logs are one, stamp and all: the console and the file of one logger."""
    lines = [strip(_line(s)).body for s in (one, other)]
    stamps = [stamp_of(_line(s)) for s in (one, other)]
    return lines[0] == lines[1] and stamps[0] is not None and stamps[0] == stamps[1]


def _line(s: Series) -> str:
    try:
        with open_regular(s.file.path) as stream:
            stream.seek(int(s.offsets[-1]))
            return (stream.read(_HEAD) or b"").partition(b"\n")[0].decode(errors="replace")
    except (ParseError, OSError):
        return ""


def _kind(file: RunFile) -> str:
    name = file.path.name.lower()
    return "log" if file.role == "log" else "events" if "tfevents" in name else name.rpartition(".")[2]


def _same(a: Series, b: Series) -> int | None:
    """Where in the first, which has no fewer points, those of the second begin; None where they are others."""
    if len(a) < a.count or len(b) < b.count:
        return None  # thinned: what is left of two is not alike
    if a.stepped and b.stepped:
        if _unordered(a) or _unordered(b):
            return 0 if np.array_equal(a.steps, b.steps) and _close(a.values, b.values) else None
        at = np.searchsorted(a.steps, b.steps)
        known = bool((at < len(a)).all()) and np.array_equal(a.steps[at], b.steps)
        return int(at[0]) if known and _close(a.values[at], b.values) else None
    return next((i for i in _starts(a, b) if _close(a.values[i : i + len(b)], b.values)), None)


def _starts(a: Series, b: Series) -> list[int]:
    """Where points without steps may begin in a history: one attempt of many, or its last values alone."""
    more = len(a) - len(b)
    if not a.stepped:
        return [0] if more <= _FINAL else []
    if len(b) < _STRETCH or not b.finite[0]:
        return [more]
    near = np.abs(a.values[: more + 1] - b.values[0]) <= _ABOUT * np.abs(b.values[0])
    return np.flatnonzero(near)[:_LOOKED].tolist()


def _unordered(s: Series) -> bool:
    return bool((np.diff(s.steps) <= 0).any())


def _close(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether numbers are the same as far as the coarser print tells."""
    if len(one) > _LOOKED:
        at = np.linspace(0, len(one) - 1, _LOOKED).astype(int)
        one, other = one[at], other[at]
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)) or not finite.any():
        return False
    one, other = one[finite], other[finite]
    allowed = np.maximum(_precision(one), _precision(other))
    return bool((np.abs(one - other) <= 1.02 * allowed).all())


def _precision(values: np.ndarray) -> np.ndarray:
    """Half a unit of the last digit that was printed: so many decimals, or so many figures."""
    texts = [f"{abs(v):.9g}" for v in values.tolist()]
    decimals = max(
        (len(t.partition("e")[0].partition(".")[2]) - int(t.partition("e")[2] or 0) for t in texts), default=0
    )
    figures = max((len(t.partition("e")[0].replace(".", "").strip("0")) for t in texts), default=1)
    size = np.where(values == 0, 1.0, np.abs(values))
    by_figures = 0.5 * 10.0 ** (np.floor(np.log10(size)) - max(figures, 1) + 1)
    by_figures = np.maximum(by_figures, _FLOAT * np.abs(values))
    return np.where(values == 0, 0.5 * 10.0**-decimals, np.maximum(0.5 * 10.0**-decimals, by_figures))


def _share_steps(first: Series, copy: Series, at: int) -> None:
    """The steps of the one that names them go to the other."""
    more = len(first) - len(copy)
    if not first.stepped and copy.stepped and more <= _FINAL:
        first.steps, first.stepped = np.append(copy.steps, copy.steps[-1:].repeat(more)), True
    elif first.stepped and not copy.stepped:
        copy.steps, copy.stepped = first.steps[at : at + len(copy)], True
