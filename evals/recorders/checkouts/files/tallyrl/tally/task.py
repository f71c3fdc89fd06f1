"""Sort digits: `4 1 7 3 =` is to be answered by `1 3 4 7 .`"""
import torch

PAD, EQUALS, STOP = 10, 11, 12
SIZE = 13


def prompts(n, length, gen):
    return torch.cat([torch.randint(0, 10, (n, length), generator=gen), torch.full((n, 1), EQUALS)], 1)


def answer(prompt):
    return torch.cat([prompt[:, :-1].sort(1).values, torch.full((len(prompt), 1), STOP)], 1)


def read(path):
    rows = [[int(c) for c in line.split()] for line in open(path)]
    return torch.cat([torch.tensor(rows), torch.full((len(rows), 1), EQUALS)], 1)


def reward(prompt, said, exact_only=False):
    """Half for the share of digits in their place, half for all of them with the stop at the end."""
    right = said == answer(prompt)
    exact = right.all(1).float()
    if exact_only:
        return exact
    length = prompt.shape[1] - 1
    return 0.5 * right[:, :length].float().mean(1) + 0.5 * exact
