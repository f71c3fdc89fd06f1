"""Windows of the series: what is known at an hour, and the level `ahead` hours later."""
import numpy as np


def make(times, rows, past, ahead):
    """x of (windows, past, features), y of (windows,): one window for each hour."""
    hour = np.asarray([t.hour for t in times], np.float32) * (2 * np.pi / 24)
    rows = np.concatenate([rows, np.sin(hour)[:, None], np.cos(hour)[:, None]], axis=1)
    starts = range(len(rows) - past - ahead + 1)
    x = np.stack([rows[s:s + past] for s in starts])
    y = np.asarray([rows[s + past + ahead - 1, 0] for s in starts])
    return x, y


def split(n, share, seed):
    """Indices of training and of validation windows."""
    order = np.random.default_rng(seed).permutation(n)
    held = int(n * share)
    return np.sort(order[held:]), np.sort(order[:held])
