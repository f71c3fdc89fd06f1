"""Numbers of ranks in few words."""

from __future__ import annotations

from collections.abc import Iterable


def spans(numbers: Iterable[int]) -> list[str]:
    """`0-3`, `7` for 0, 1, 2, 3, 7 in any order."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return [str(a) if a == b else f"{a}-{b}" for a, b in runs]
