import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, past, features, width=0, dropout=0.0):
        super().__init__()
        self.out = nn.Linear(past * features, 1)

    def forward(self, x):
        return self.out(x.flatten(1)).squeeze(1)


class Dense(nn.Module):
    def __init__(self, past, features, width=256, dropout=0.0):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(past * features, width), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(width, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, 1))

    def forward(self, x):
        return x[:, -1, 0] + self.body(x.flatten(1)).squeeze(1)  # what changes from now on


class Gru(nn.Module):
    def __init__(self, past, features, width=32, dropout=0.0):
        super().__init__()
        self.rnn = nn.GRU(features, width, batch_first=True)
        self.out = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, 1))

    def forward(self, x):
        return x[:, -1, 0] + self.out(self.rnn(x)[0][:, -1]).squeeze(1)


NETS = {"linear": Linear, "dense": Dense, "gru": Gru}


def build(name, **sizes) -> nn.Module:
    return NETS[name](**sizes)


def count(net):
    return sum(p.numel() for p in net.parameters() if p.requires_grad)


def mae(net, x, y):
    net.eval()
    with torch.no_grad():
        wrong = (torch.cat([net(part) for part in x.split(1024)]) - y).abs().mean().item()
    net.train()
    return wrong
