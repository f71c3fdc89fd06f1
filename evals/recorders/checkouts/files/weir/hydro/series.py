"""The gauge's hourly series: read, looked through for gaps, scaled."""
import csv
import sys
from datetime import datetime, timedelta

import numpy as np

COLUMNS = ("level_cm", "rain_mm", "temp_c")


def read(path, until=None, since=None):
    times, rows = [], []
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            when = datetime.fromisoformat(row["time"])
            if (until and when >= until) or (since and when < since):
                continue
            times.append(when)
            rows.append([float(row[c]) for c in COLUMNS])
    return times, np.asarray(rows, dtype=np.float32)


def gaps(times):
    return [t for t, n in zip(times, times[1:]) if n - t != timedelta(hours=1)]


class Scale:
    """Mean and deviation of the training period, kept with the weights."""

    def __init__(self, mean, std):
        self.mean, self.std = np.asarray(mean, np.float32), np.asarray(std, np.float32)

    @classmethod
    def of(cls, rows):
        return cls(rows.mean(0), rows.std(0) + 1e-6)

    def __call__(self, rows):
        return (rows - self.mean) / self.std

    def level(self, scaled):
        return scaled * self.std[0] + self.mean[0]


if __name__ == "__main__":
    found = gaps(read(sys.argv[1])[0])
    print(len(found), "gaps", *found[:10])
