import numpy as np
from larder.scores import token_accuracy


def test_accuracy_looks_one_on():
    logits = np.zeros((1, 3, 5))
    logits[0, 0, 2] = logits[0, 1, 4] = 1
    assert token_accuracy((logits, np.array([[-100, 2, 4]])))["token_accuracy"] == 1.0


def test_nan_is_not_right():
    assert token_accuracy((np.full((1, 3, 5), np.nan), np.array([[-100, 2, 4]])))["token_accuracy"] == 0.0
