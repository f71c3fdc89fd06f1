"""Subject classifier for abstracts: a small transformer encoder over bytes, batches padded to their longest text."""

import argparse
import json
import logging
import random
import sys

import torch
import yaml
from torch import nn

logging.basicConfig(stream=sys.stdout, format="[%(asctime)s] %(levelname)s: %(message)s", level=logging.INFO)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, pad):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(pad[:, None, None, :], -1e4).softmax(-1)
        x = x + self.proj((weights @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(257, cfg["dim"], padding_idx=256)
        self.blocks = nn.ModuleList(Block(cfg["dim"], cfg["heads"]) for _ in range(cfg["layers"]))
        self.head = nn.Linear(cfg["dim"], cfg["subjects"])

    def forward(self, ids):
        pad = ids == 256
        x = self.embed(ids)
        angle = torch.arange(ids.shape[1])[:, None] / 10000 ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
        x = x + torch.cat([angle.sin(), angle.cos()], -1)
        for block in self.blocks:
            x = block(x, pad)
        keep = (~pad)[..., None].float()
        return self.head((x * keep).sum(1) / keep.sum(1))


def batches(rows, size, longest, seed):
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    for at in range(0, len(order) - size + 1, size):
        part = [rows[i] for i in order[at : at + size]]
        texts = [list(r["text"].encode())[:longest] for r in part]
        width = max(map(len, texts))
        yield torch.tensor([t + [256] * (width - len(t)) for t in texts]), torch.tensor([r["subject"] for r in part])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    cfg = yaml.safe_load(open(parser.parse_args().config))
    torch.manual_seed(cfg["train"]["seed"])
    rows = [json.loads(line) for line in open(cfg["data"]["file"])]
    model = Encoder(cfg["model"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["train"]["lr"])
    logging.info("%d abstracts, %d parameters", len(rows), sum(p.numel() for p in model.parameters()))
    step = 0
    for epoch in range(cfg["train"]["epochs"]):
        for ids, subjects in batches(rows, cfg["train"]["batch_size"], cfg["data"]["max_length"], epoch):
            step += 1
            if step % cfg["train"]["log_every"] == 0 or ids.shape[1] > 1024:
                logging.info("epoch %d step %d: tokens %d x %d", epoch, step, *ids.shape)
            loss = nn.functional.cross_entropy(model(ids), subjects)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % cfg["train"]["log_every"] == 0:
                logging.info("epoch %d step %d: loss %.4f", epoch, step, loss.item())
        logging.info("epoch %d finished", epoch)


if __name__ == "__main__":
    main()
