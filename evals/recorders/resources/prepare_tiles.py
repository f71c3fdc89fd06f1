"""Cut tiles and masks out of a synthetic scene."""

import sys

import numpy as np

count, size, bands = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
rng = np.random.default_rng(3)
masks = np.repeat(np.repeat(rng.integers(0, 5, (count, size // 16, size // 16), dtype=np.uint8), 16, 1), 16, 2)
tone = rng.integers(40, 215, (5, bands), dtype=np.int16)
with open("tiles.u8", "wb") as out:
    for m in masks:
        noise = rng.integers(-30, 30, (bands, size, size), dtype=np.int16)
        out.write(np.clip(tone[m].transpose(2, 0, 1) + noise, 0, 255).astype(np.uint8).tobytes())
np.save("masks.npy", masks)
