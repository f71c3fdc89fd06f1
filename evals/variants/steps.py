"""Step lines between two step lines of a log: the same words, the numbers on the way from one to the other."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TOKEN = re.compile(r"\d+(?::\d\d)+(?:[.,]\d+)?|\d+\.\d+(?:[eE][-+]?\d+)?|\d+(?:[eE][-+]\d+)?")
_STEP = re.compile(r"(?:\bsteps?|\biter(?:ation)?s?|global_step)['\"]?\s*[:=/ ]\s*(\d+)|\b(\d+)/\d+\b", re.IGNORECASE)
MOST = 9  # steps between two; a log that shows one of a hundred would not be denser, and a pause belongs to one step


def refined(before: str, after: str) -> Iterator[str]:
    """The lines of the steps between two lines of one form; none where they are not, or no step lies between."""
    first, last = _STEP.search(before), _STEP.search(after)
    if not (first and last) or _TOKEN.sub("#", before) != _TOKEN.sub("#", after):
        return
    missing = int(last[1] or last[2]) - int(first[1] or first[2]) - 1
    if not 0 < missing <= MOST:
        return
    ends = _TOKEN.findall(after)
    for k in range(1, missing + 1):
        numbers = iter(ends)
        yield _TOKEN.sub(lambda m, n=numbers, share=k / (missing + 1): _between(m[0], next(n), share), before)


def _between(a: str, b: str, share: float) -> str:
    if a == b:
        return a
    if ":" in a or ":" in b:
        return _clock(_seconds(a) + (_seconds(b) - _seconds(a)) * share, a)
    value = float(a) + (float(b) - float(a)) * share
    if "e" in a.lower():
        digits = len(re.split("[eE]", a)[0].partition(".")[2])
        return f"{value:.{digits}e}"
    decimals = len(a.partition(".")[2])
    return f"{value:0{len(a)}.{decimals}f}" if a.startswith("0") and not decimals else f"{value:.{decimals}f}"


def _seconds(clock: str) -> float:
    total = 0.0
    for part in clock.replace(",", ".").split(":"):
        total = total * 60 + float(part)
    return total


def _clock(seconds: float, form: str) -> str:
    mark = "," if "," in form else "."
    decimals = len(re.split("[.,]", form)[1]) if re.search("[.,]", form) else 0
    whole, part = divmod(int(seconds * 10**decimals), 10**decimals)
    parts = []
    for _ in range(form.count(":")):
        whole, rest = divmod(whole, 60)
        parts.append(f"{rest:02d}")
    width = len(form.split(":")[0])
    text = ":".join([f"{whole:0{width}d}", *reversed(parts)])
    return f"{text}{mark}{part:0{decimals}d}" if decimals else text
