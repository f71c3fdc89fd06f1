import torch

from tally import task


def test_reward():
    prompt = torch.tensor([[4, 1, 7, task.EQUALS]])
    assert task.reward(prompt, torch.tensor([[1, 4, 7, task.STOP]])).item() == 1
    assert task.reward(prompt, torch.tensor([[1, 4, 7, 7]])).item() == 0.5
    assert task.reward(prompt, torch.tensor([[7, 4, 1, task.STOP]])).item() < 0.2
