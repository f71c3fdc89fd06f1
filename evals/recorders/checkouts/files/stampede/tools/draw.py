"""Draw the crops: python tools/draw.py --out data --seed 4"""
import argparse

import numpy as np

NAMES = ("anchor", "bell", "crown", "diamond", "eagle", "fish", "gate", "harp", "ivy", "jug")


def shapes():
    r = np.random.default_rng(1871)
    out = []
    for _ in NAMES:
        m = r.random((7, 7)) < 0.45
        m = m | m[:, ::-1] if r.random() < 0.6 else m
        out.append(np.kron(m, np.ones((2, 2))))
    return out


def crop(shape, r, ink):
    x = np.roll(shape, tuple(r.integers(-1, 2, 2)), (0, 1)) * ink
    x = 0.7 * x + 0.3 * np.roll(x, 1, r.integers(0, 2))
    if r.random() < 0.3:
        k = int(r.integers(3, 8))
        x[:k, :k] = 0 if r.random() < 0.5 else 0.6
    x = x + r.normal(0, 0.30, x.shape)
    return (x.clip(0, 1) * 15).round().astype(int)


def write(path, n, r, ink):
    every = shapes()
    with open(path, "w") as f:
        f.write("stamp,pixels\n")
        for i in range(n):
            k = int(r.integers(len(NAMES)))
            f.write(f"{NAMES[k]},{''.join('%x' % v for v in crop(every[k], r, ink).ravel())}\n")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default="data")
    ap.add_argument("--seed", type=int, default=4)
    a = ap.parse_args()
    r = np.random.default_rng(a.seed)
    write(f"{a.out}/train.csv", 900, r, 0.75)
    write(f"{a.out}/val.csv", 300, r, 0.75)
    write(f"{a.out}/holdout.csv", 120, r, 0.5)
