import numpy as np

from hydro.series import Scale


def test_there_and_back():
    rows = np.random.default_rng(0).normal(50, 7, (200, 3)).astype(np.float32)
    scale = Scale.of(rows)
    assert np.allclose(scale.level(scale(rows)[:, 0]), rows[:, 0], atol=1e-3)
