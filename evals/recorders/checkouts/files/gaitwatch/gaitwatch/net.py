import torch
from torch import nn

from .sessions import ACTIVITIES


class GaitNet(nn.Module):
    def __init__(self, cfg, batch):
        super().__init__()
        self.front = nn.Conv1d(3, cfg["hidden"], 5, stride=2, padding=2)
        self.rnn = nn.GRU(cfg["hidden"], cfg["hidden"], cfg["layers"], batch_first=True, dropout=cfg["dropout"])
        self.out = nn.Linear(cfg["hidden"], len(ACTIVITIES))
        self.register_buffer("start", torch.zeros(cfg["layers"], batch, cfg["hidden"]), persistent=False)

    def forward(self, x):
        h = self.front(x.transpose(1, 2)).relu().transpose(1, 2)
        h, _ = self.rnn(h, self.start)
        return self.out(h.mean(1))
