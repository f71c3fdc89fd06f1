import torch

from tally import objective


def test_advantages_are_centred():
    adv = objective.advantages(torch.rand(24), 8)
    assert adv.view(3, 8).mean(1).abs().max() < 1e-5


def test_equal_rewards_have_no_advantage():
    assert not objective.advantages(torch.ones(8), 8).any()


def test_kl_of_itself():
    p = torch.randn(4, 6)
    assert objective.objective(p, p, p, torch.zeros(4), 0.2, 1.0)[0].abs() < 1e-7
