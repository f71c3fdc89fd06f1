import os

import numpy as np

rng = np.random.default_rng(0)
for i in range(160):
    folder = f"recordings/r{i:04d}_{i % 4}"
    os.makedirs(folder)
    x = rng.normal(size=(12, 10, 25)).astype(np.float32) + (i % 4) * 0.3
    for s in range(12):
        for t in range(10):
            np.save(f"{folder}/s{s:02d}_{t:02d}.npy", x[s, t])
