# tinyaug 0.1 (MIT), only what train_vit.py used
import torch


def erase(x, side=4, p=0.5):
    if torch.rand(()) < p:
        i, j = torch.randint(0, x.shape[-1] - side, (2,)).tolist()
        x = x.clone()
        x[..., i:i + side, j:j + side] = 0
    return x


def mixup(x, y, alpha=0.4):
    lam = torch.distributions.Beta(alpha, alpha).sample()
    order = torch.randperm(len(x))
    return lam * x + (1 - lam) * x[order], y, y[order], lam
