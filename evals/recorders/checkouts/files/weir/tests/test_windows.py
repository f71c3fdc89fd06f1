from datetime import datetime, timedelta

import numpy as np

from hydro import windows

TIMES = [datetime(2024, 1, 1) + timedelta(hours=h) for h in range(100)]
ROWS = np.arange(100, dtype=np.float32)[:, None].repeat(3, 1)


def test_target_is_ahead_of_the_last_hour():
    x, y = windows.make(TIMES, ROWS, past=10, ahead=5)
    assert x[0, -1, 0] == 9 and y[0] == 14


def test_no_window_is_lost():
    x, _ = windows.make(TIMES, ROWS, past=10, ahead=5)
    train, val = windows.split(len(x), 0.2, seed=3)
    assert sorted([*train, *val]) == list(range(len(x)))
    assert not set(train) & set(val)
