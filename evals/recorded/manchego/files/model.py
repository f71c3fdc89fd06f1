"""A stack of gated convolutions over characters."""
import torch
from torch import nn


class Gated(nn.Module):
    def __init__(self, dim, width, dropout):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.conv = nn.Conv1d(dim, 2 * dim, width, padding=width // 2)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        a, b = self.conv(self.norm(x).transpose(1, 2)).chunk(2, dim=1)
        return x + self.drop((a * b.sigmoid()).transpose(1, 2))


class Restorer(nn.Module):
    """Characters with gaps in, a score for each vowel at each place out."""

    def __init__(self, symbols, vowels, dim=48, layers=3, width=5, dropout=0.0):
        super().__init__()
        self.embed = nn.Embedding(symbols, dim)
        self.layers = nn.ModuleList(Gated(dim, width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, vowels)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


def size(net):
    """Euclidean norm of all weights together."""
    return torch.stack([p.detach().norm() for p in net.parameters()]).norm().item()
