"""Robust statistics of a curve: levels, noise, jumps and trends that survive outliers."""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray


def mad(values: Array) -> float:
    """Median absolute deviation scaled to the standard deviation of a normal distribution."""
    if len(values) < 2:
        return 0.0
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


def noise(values: Array) -> float:
    """Point-to-point noise of a curve with a trend: spread of first differences over the root of two."""
    if len(values) < 3:
        return 0.0
    return mad(np.diff(values)) / math.sqrt(2)


def level(values: Array, part: slice) -> float:
    """Median of a part of a curve; NaN when empty."""
    chosen = values[part]
    return float(np.median(chosen)) if len(chosen) else math.nan


def head(length: int, share: float = 0.25, least: int = 1) -> slice:
    """The first `share` of a curve."""
    return slice(0, max(least, int(length * share)))


def tail(length: int, share: float = 0.25, least: int = 1) -> slice:
    """The last `share` of a curve."""
    return slice(length - min(length, max(least, int(length * share))), length)


def change(values: Array, share: float = 0.3) -> tuple[float, float]:
    """Median of the last part less that of the first, and how many standard errors that is."""
    first, last = values[head(len(values), share, 2)], values[tail(len(values), share, 2)]
    if not len(first) or not len(last):
        return 0.0, 0.0
    step = float(np.median(last) - np.median(first))
    spread = noise(values) or 1e-12 * max(1.0, abs(float(np.median(values))))
    error = 1.2533 * spread * math.sqrt(1 / len(first) + 1 / len(last))
    return step, step / error if error else 0.0


def rolling_median(values: Array, window: int) -> Array:
    """Median of up to `window` points before each point (the point itself not included); NaN for the first."""
    out = np.full(len(values), np.nan)
    if len(values) > window:
        view = np.lib.stride_tricks.sliding_window_view(values, window)
        out[window:] = np.median(view, axis=1)[:-1]
    for i in range(1, min(window + 1, len(values))):
        out[i] = np.median(values[:i])
    return out


def rolling_mean(values: Array, window: int) -> Array:
    """Mean of up to `window` points before each point; NaN for the first."""
    total = np.concatenate(([0.0], np.cumsum(values)))
    index = np.arange(len(values))
    start = np.maximum(index - window, 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (total[index] - total[start]) / (index - start)


def smooth(values: Array, window: int) -> Array:
    """Centred running median, shorter at the ends."""
    if window < 3 or len(values) < 3:
        return values.astype(float)
    half = window // 2
    padded = np.concatenate((np.repeat(values[:1], half), values, np.repeat(values[-1:], half)))
    return np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)


def runs(mask: Array) -> list[tuple[int, int]]:
    """(start, end) of the stretches where `mask` holds, end exclusive."""
    if not len(mask):
        return []
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def longest_run(mask: Array) -> tuple[int, int]:
    """The longest stretch where `mask` holds; (0, 0) when none."""
    return max(runs(mask), key=lambda r: r[1] - r[0], default=(0, 0))


def spikes(values: Array, *, sigmas: float = 8.0, ratio: float = 1.5, window: int = 25) -> Array:
    """Mask of points far above what came before: by noise and by ratio. Needs five points of history.

    The noise is that of the curve before the point, never under 2 % of its level, so that a smooth curve does
    not make every ripple a spike.
    """
    if len(values) < 6:
        return np.zeros(len(values), dtype=bool)
    before = rolling_median(values, window)
    residual = np.abs(values - before)
    spread = 1.4826 * rolling_median(np.nan_to_num(residual), window)
    floor = np.maximum(0.02 * np.abs(before), max(0.7 * noise(values), 1e-12))
    with np.errstate(invalid="ignore"):
        high = values - before > sigmas * np.maximum(spread, floor)
        high &= values > ratio * np.abs(before)
    high[:5] = False
    return high


def slope(values: Array, at: Array) -> float:
    """Robust slope: median of slopes between points half the curve apart (Theil and Sen, thinned)."""
    half = len(values) // 2
    if half < 2:
        return 0.0
    run = at[half : 2 * half] - at[:half]
    rise = values[half : 2 * half] - values[:half]
    good = run > 0
    return float(np.median(rise[good] / run[good])) if good.any() else 0.0


def repeated(values: Array) -> tuple[float, int, int]:
    """(value, start, length) of the longest stretch of exactly equal values."""
    if not len(values):
        return math.nan, 0, 0
    start, end = longest_run(np.concatenate(([False], values[1:] == values[:-1])))
    if end <= start:
        return float(values[0]), 0, 1
    return float(values[start]), start - 1, end - start + 1
