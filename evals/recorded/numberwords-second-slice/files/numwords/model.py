import torch
from torch import nn

from . import letters


class Seq2Seq(nn.Module):
    def __init__(self, width, dropout=0.1):
        super().__init__()
        self.src = nn.Embedding(len(letters.SOURCE) + 3, width, padding_idx=letters.PAD)
        self.tgt = nn.Embedding(len(letters.TARGET) + 3, width, padding_idx=letters.PAD)
        self.enc = nn.GRU(width, width // 2, batch_first=True, bidirectional=True)
        self.dec = nn.GRU(width, width, batch_first=True)
        self.ask = nn.Linear(width, width, bias=False)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.Tanh(), nn.Linear(width, len(letters.TARGET) + 3))

    def encode(self, x):
        h, last = self.enc(self.drop(self.src(x)))
        return h, torch.cat([last[0], last[1]], -1)[None], x == letters.PAD

    def decode(self, y, memory, state, blind):
        d, state = self.dec(self.drop(self.tgt(y)), state)
        a = (self.ask(d) @ memory.transpose(1, 2)).masked_fill(blind[:, None], -1e9).softmax(-1)
        return self.out(torch.cat([d, a @ memory], -1)), state

    def forward(self, x, y):
        memory, state, blind = self.encode(x)
        before = torch.cat([torch.full_like(y[:, :1], letters.BOS), y[:, :-1]], 1)
        logits, _ = self.decode(before, memory, state, blind)
        return nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=letters.PAD)

    @torch.no_grad()
    def greedy(self, x, most=6):
        memory, state, blind = self.encode(x)
        y, out = torch.full((len(x), 1), letters.BOS), []
        for _ in range(most):
            logits, state = self.decode(y, memory, state, blind)
            y = logits[:, -1:].argmax(-1)
            out.append(y)
        return [letters.digits(r) for r in torch.cat(out, 1).tolist()]
