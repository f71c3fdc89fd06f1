import torch

from deskcls import model as models
from deskcls.words import Words


def test_freeze():
    net = models.build("", Words("data/words.txt"), 6)
    every = models.size(net.parameters())
    net.freeze_encoder(True)
    assert models.size(net.trainable()) == models.size(net.classifier.parameters())
    net.freeze_encoder(False)
    assert models.size(net.trainable()) == every


def test_padding_changes_nothing():
    net = models.build("", Words("data/words.txt"), 6).eval()
    a = net(torch.tensor([[1, 9, 2]]), torch.ones(1, 3).long())[0]
    b = net(torch.tensor([[1, 9, 2, 0, 0]]), torch.tensor([[1, 1, 1, 0, 0]]))[0]
    assert torch.allclose(a, b, atol=1e-5)
