"""Writes customers.csv: `customers.py ROWS NOISE`."""

import random
import sys

rows, noise, rng = int(sys.argv[1]), float(sys.argv[2]), random.Random(5)
with open("customers.csv", "w") as f:
    f.write("age,months,calls,complaints,spend,churned\n")
    for _ in range(rows):
        row = [rng.gauss(45, 12), rng.gauss(30, 15), rng.gauss(20, 8), rng.gauss(2, 1), rng.gauss(50, 20)]
        score = 0.1 * (row[2] - 20) + 0.8 * (row[3] - 2) - 0.05 * (row[1] - 30) + rng.gauss(0, noise)
        f.write(",".join(f"{v:.2f}" for v in row) + f",{int(score > 0)}\n")
