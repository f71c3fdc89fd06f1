import torch

from gaitwatch import settings
from gaitwatch.net import GaitNet


def test_shape():
    cfg = settings.DEFAULTS
    assert GaitNet(cfg["net"], 16)(torch.zeros(16, 40, 3)).shape == (16, 5)
