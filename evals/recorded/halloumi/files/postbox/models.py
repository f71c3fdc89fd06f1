"""Models: a bag of words, and a small attention encoder."""

import torch
from torch import nn


class Bag(nn.Module):
    def __init__(self, cfg, vocab, topics):
        super().__init__()
        self.embed = nn.Embedding(vocab, cfg.dim, padding_idx=0)
        self.drop = nn.Dropout(cfg.dropout)
        self.out = nn.Linear(cfg.dim, topics)

    def forward(self, ids):
        there = (ids > 0).unsqueeze(-1)
        mean = (self.embed(ids) * there).sum(1) / there.sum(1).clamp(min=1)
        return self.out(self.drop(mean))


class Attention(nn.Module):
    def __init__(self, cfg, vocab, topics):
        super().__init__()
        self.embed = nn.Embedding(vocab, cfg.dim, padding_idx=0)
        self.place = nn.Parameter(torch.randn(512, cfg.dim) * 0.02)
        layer = nn.TransformerEncoderLayer(cfg.dim, cfg.heads, 2 * cfg.dim, cfg.dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.layers, enable_nested_tensor=False)
        self.drop = nn.Dropout(cfg.dropout)
        self.out = nn.Linear(cfg.dim, topics)

    def forward(self, ids):
        there = ids > 0
        x = self.encoder(self.embed(ids) + self.place[: ids.shape[1]], src_key_padding_mask=~there)
        there = there.unsqueeze(-1)
        return self.out(self.drop((x * there).sum(1) / there.sum(1).clamp(min=1)))


def build(cfg, vocab, topics):
    if cfg.kind == "pretrained":
        raise SystemExit("model=bert_8gpu needs transformers and a GPU, see README")
    return {"bag": Bag, "attention": Attention}[cfg.kind](cfg, vocab, topics)
