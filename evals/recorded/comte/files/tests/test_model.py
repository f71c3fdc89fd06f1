import math

import torch
from model import Restorer
from torch.nn import functional as F


def test_a_new_network_guesses():
    net = Restorer(60, 10, 16, 2)
    loss = F.cross_entropy(net(torch.randint(60, (4, 32))).flatten(0, 1), torch.randint(10, (128,)))
    assert abs(loss.item() - math.log(10)) < 0.4
