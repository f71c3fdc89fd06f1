"""Entity tagging with a bidirectional encoder, batches by length, compiled model."""

import argparse
import logging
import time

import torch
import yaml
from torch import nn

logging.basicConfig(format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
log = logging.getLogger("tagger")


class Tagger(nn.Module):
    def __init__(self, words, tags, dim, layers):
        super().__init__()
        self.embed = nn.Embedding(words, dim)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True) for _ in range(layers))
        self.out = nn.Linear(dim, tags)

    def forward(self, x):
        h = self.embed(x)
        for layer in self.layers:
            h = layer(h)
        return self.out(h)


def sentences(count, seed):
    rng = torch.Generator().manual_seed(seed)
    for _ in range(count):
        length = int(torch.randint(6, 64, (1,), generator=rng))
        words = torch.randint(0, 2000, (16, length), generator=rng)
        yield words, words % 9


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="tagger.yaml")
    cfg = yaml.safe_load(open(parser.parse_args().config))
    torch.manual_seed(cfg["seed"])
    model = Tagger(2000, 9, cfg["dim"], cfg["layers"])
    if cfg["compile"]["enabled"]:
        model.compile(backend=cfg["compile"]["backend"], dynamic=cfg["compile"]["dynamic"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    for step, (words, tags) in enumerate(sentences(cfg["steps"], cfg["seed"]), 1):
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %3d loss %.4f batch %s %.0f ms", step, loss.item(), tuple(words.shape), 1e3 * (time.perf_counter() - began))
    log.info("training finished")


if __name__ == "__main__":
    main()
