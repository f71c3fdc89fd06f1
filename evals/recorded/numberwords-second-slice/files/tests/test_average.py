import torch

from numwords.average import Average


def test_comes_nearer():
    net = torch.nn.Linear(2, 2)
    avg = Average(net, 0.9)
    with torch.no_grad():
        net.weight.zero_()
    for _ in range(100):
        avg.update(net)
    assert avg.mean["weight"].abs().max() < 1e-3


def test_weights_are_back_afterwards():
    net = torch.nn.Linear(2, 2)
    avg, own = Average(net, 0.9), net.weight.clone()
    avg.mean["weight"].zero_()
    with avg.put_into(net):
        assert not net.weight.any()
    assert torch.equal(net.weight, own)
