"""A decoder-only transformer over characters."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .config import ModelConfig


class Block(nn.Module):
    def __init__(self, c: ModelConfig):
        super().__init__()
        self.heads, self.drop = c.heads, c.dropout
        self.ln1, self.ln2 = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.qkv = nn.Linear(c.dim, 3 * c.dim, bias=False)
        self.out = nn.Linear(c.dim, c.dim, bias=False)
        self.mlp = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim), nn.Dropout(c.dropout))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.drop if self.training else 0.0)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class LetterModel(nn.Module):
    def __init__(self, c: ModelConfig, vocab: int):
        super().__init__()
        self.context = c.context
        self.embed = nn.Embedding(vocab, c.dim)
        self.place = nn.Embedding(c.context, c.dim)
        self.drop = nn.Dropout(c.dropout)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.ln = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, vocab, bias=False)
        self.apply(self._begin)
        if c.tie_embeddings:
            self.head.weight = self.embed.weight

    @staticmethod
    def _begin(m):
        if isinstance(m, (nn.Linear, nn.Embedding)):
            nn.init.normal_(m.weight, std=0.02)
        if isinstance(m, nn.Linear) and m.bias is not None:
            nn.init.zeros_(m.bias)

    def forward(self, ids, targets=None):
        x = self.drop(self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.ln(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def generate(self, ids, count: int, temperature: float = 1.0):
        for _ in range(count):
            logits, _ = self(ids[:, -self.context :])
            p = (logits[:, -1] / temperature).softmax(-1)
            ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
        return ids
