"""Hampel filter, vendored (BSD-2-Clause)."""
import numpy as np


def hampel(x, half=3, limit=3.0):
    out = np.array(x, dtype=float)
    for i in range(half, len(x) - half):
        around = x[i - half:i + half + 1]
        mid = np.median(around)
        mad = 1.4826 * np.median(np.abs(around - mid))
        if mad and abs(x[i] - mid) > limit * mad:
            out[i] = mid
    return out
