"""Time limits that somebody set, against the limits that errors say were in force.

A variable that never reaches the process (a worker that another daemon starts, a step with its own environment) leaves
no trace but this: the message names another number than the one that was set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .failure import Failure
from .failures import failures
from .settings import Setting, read_settings

if TYPE_CHECKING:
    from ..workspace import Workspace

_LIMIT = re.compile(r"(?i)time_?-?out|deadline|max_?wait|wait_?time|grace")
_TOLD = re.compile(
    r"(?i)\b(?:in|within|after|for|of|exceeded|waited|timeout[ =:]{1,3})\s?\(?(?P<n>\d{1,7}(?:\.\d+)?)\s?"
    r"(?P<unit>ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b"
)
_VALUE = re.compile(r"(?P<n>\d{1,9}(?:\.\d+)?)\s?(?P<unit>ms|s|sec|m|min|h)?")
_SECONDS = {"ms": 0.001, "mi": 60.0, "m": 60.0, "h": 3600.0, "s": 1.0}
# Words of names and sentences that say nothing about whose limit it is.
_COMMON = frozenset({
    "timeout", "time", "out", "in", "sec", "secs", "seconds", "ms", "min", "minutes", "max", "wait", "limit",
    "deadline", "default", "the", "to", "of", "with", "for", "and", "not", "python", "lib", "site", "packages",
    "init", "main", "utils", "util", "run", "error", "runtime", "py", "data", "opt", "home", "get", "set", "is",
    "was", "after", "within", "train", "training", "trainer", "src", "core", "job", "start", "grace", "period",
    "torch", "nccl", "distributed", "process", "group",
})  # fmt: skip
SHARED, NEAR = 2, 0.03  # words in common; an error comes a little after its limit
FRAMES = 4


@dataclass(frozen=True, slots=True)
class NotApplied:
    """A limit that was set and the message that names another one."""

    setting: Setting
    asked: str
    told: str
    failure: Failure


def times_not_applied(ws: Workspace) -> Iterator[NotApplied]:
    """Each limit that was set, whose name shares its words with a failure that tells of another limit."""
    asked = [s for s in read_settings(ws).all if not s.used and not s.default and _LIMIT.search(s.key)]
    values = [(s, seconds) for s in asked if (seconds := _asked(s.value))]
    for group in failures(ws).groups:
        failure = group.lead
        told = {round(_seconds(m["n"], m["unit"]), 3): m[0] for m in _TOLD.finditer(failure.message[:2000])}
        if not told:
            continue
        words = _words(
            f"{failure.message[:2000]} " + " ".join(f"{f.path} {f.function}" for f in failure.frames[-FRAMES:])
        )
        for setting, possible in values:
            own = _words(setting.key) - _COMMON
            if len(own & words) >= SHARED and not any(0 <= t - p <= NEAR * p for t in told for p in possible):
                yield NotApplied(setting, f"{setting.key} = {setting.value}", next(iter(told.values())), failure)


def _asked(value: object) -> set[float]:
    """The seconds a value may mean: without a unit it can be seconds, milliseconds or minutes."""
    m = _VALUE.fullmatch(str(value).strip().strip("\"'"))
    if m is None:
        return set()
    if m["unit"]:
        return {round(_seconds(m["n"], m["unit"]), 3)}
    n = float(m["n"])
    return {n, round(n / 1000, 3), n * 60} if n else set()


def _seconds(number: str, unit: str) -> float:
    unit = unit.lower()
    return float(number) * _SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[:1]]


def _words(text: str) -> set[str]:
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {w.lower() for w in re.split(r"[^A-Za-z]+", split) if len(w) > 1}
