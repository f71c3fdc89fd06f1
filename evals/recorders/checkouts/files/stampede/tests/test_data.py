from stampede.data import NAMES, read


def test_shapes():
    x, y = read("data/val.csv")
    assert x.shape[1:] == (1, 14, 14) and 0 <= x.min() and x.max() <= 1
    assert set(y.tolist()) == set(range(len(NAMES)))
