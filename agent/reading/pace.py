"""Seconds per step from the time stamps of metric lines, for logs that print none."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from .clocks import stamp_of
from .files import Line, RunFile, open_regular
from .series import Series

_PACED = {"step_time", "throughput", "tflops", "bar_step_time"}
_MOST_POINTS = 4_000  # lines looked at per file
_LOOK = 200  # bytes of a line that may hold its stamp


def paces(series: Iterable[Series]) -> list[Series]:
    """One step-time series for each plain log that stamps its steps and reports no pace of its own."""
    by_file: dict[tuple, list[Series]] = {}
    for s in series:
        by_file.setdefault((s.file.name, s.rank, s.variant), []).append(s)
    found = []
    for members in by_file.values():
        best = max(members, key=lambda s: s.count)
        usable = (
            best.stepped and best.file.role == "log" and 4 <= len(best) <= _MOST_POINTS and best.metric != "eval_loss"
        )
        if usable and not any(s.metric in _PACED for s in members) and (pace := _pace(best)) is not None:
            found.append(pace)
    return found


def _pace(s: Series) -> Series | None:
    seconds = _stamps(s.file, s.offsets)
    if seconds is None:
        return None
    took, steps = np.diff(seconds), np.diff(s.steps)
    good = (took >= 0) & (steps > 0) & np.isfinite(took)
    if good.sum() < 3 or float(np.median(took[good])) < 2.0:
        return None  # stamps in whole seconds cannot time steps this short
    at = np.flatnonzero(good) + 1
    return Series(
        "step_time", "time stamps", s.file, s.steps[at], took[good] / steps[good], s.lines[at], s.offsets[at],
        np.ones(len(at), dtype=bool), True, len(at), rank=s.rank, attempt=s.attempt, variant=s.variant,
    )  # fmt: skip


def _stamps(file: RunFile, offsets: np.ndarray) -> np.ndarray | None:
    """Seconds of each line by its stamp, NaN without one; None when the first lines have none."""
    found = np.full(len(offsets), np.nan)
    kind = None
    with open_regular(file.path) as stream:
        for i, offset in enumerate(offsets.tolist()):
            stream.seek(offset)
            line = Line(0, offset, (stream.read(_LOOK) or b"").partition(b"\n")[0])
            stamp = stamp_of(line.text)
            if stamp is None or (kind is not None and stamp.kind != kind):
                if i == 0:
                    return None
                continue
            kind = stamp.kind
            found[i] = stamp.value
    if kind == "clock":
        found[1:] += 86_400 * np.cumsum(np.diff(found) < -43_200)  # past midnight
    return found
