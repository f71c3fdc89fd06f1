"""Character model over documents in JSONL; writes samples while it trains."""
import argparse
import csv
import json
import random

import torch
import yaml
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm


class CharModel(nn.Module):
    def __init__(self, size, dim):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(size, dim), nn.LSTM(dim, dim, batch_first=True), nn.Linear(dim, size)

    def forward(self, x, state=None):
        h, state = self.rnn(self.embed(x), state)
        return self.out(h), state


def read(path, encoding):
    with open(path, encoding=encoding) as f:
        return [json.loads(line)["text"] for line in f]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default="lm.yaml")
    cfg = yaml.safe_load(open(p.parse_args().config))
    torch.manual_seed(cfg["seed"])
    random.seed(cfg["seed"])
    docs, held = read(cfg["train_file"], cfg["encoding"]), read(cfg["val_file"], cfg["encoding"])
    chars = sorted(set("".join(docs + held)) | {"\n"})
    at = {c: i for i, c in enumerate(chars)}
    print(f"{cfg['train_file']}: {len(docs)} documents, {sum(map(len, docs))} characters, alphabet of {len(chars)}")

    def tensor(texts):
        width = max(map(len, texts)) + 1
        ids = torch.zeros(len(texts), width, dtype=torch.long)
        keep = torch.full((len(texts), width), -100)
        for i, t in enumerate(texts):
            row = torch.tensor([at[c] for c in t + "\n"])
            ids[i, :len(row)] = keep[i, :len(row)] = row
        return ids, keep

    model = CharModel(len(chars), cfg["dim"])
    opt = torch.optim.AdamW(model.parameters(), cfg["lr"], weight_decay=cfg["weight_decay"])
    table = csv.writer(open("metrics.csv", "w"))
    table.writerow(["epoch", "train_loss", "val_loss"])
    samples = open("samples.txt", "w")
    for epoch in range(1, cfg["epochs"] + 1):
        order, total, count = random.sample(docs, len(docs)), 0.0, 0
        for i in tqdm(range(0, len(order), cfg["batch_size"]), desc=f"epoch {epoch}", mininterval=2):
            ids, keep = tensor(order[i:i + cfg["batch_size"]])
            loss = F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), keep[:, 1:].flatten(), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total, count = total + loss.item(), count + 1
        with torch.no_grad():
            ids, keep = tensor(held)
            val = F.cross_entropy(model(ids[:, :-1])[0].flatten(0, 1), keep[:, 1:].flatten(), ignore_index=-100).item()
            print(f"epoch {epoch}: train {total / count:.4f} val {val:.4f}", flush=True)
            table.writerow([epoch, f"{total / count:.4f}", f"{val:.4f}"])
            for _ in range(4):
                text, state = random.choice(held)[:3], None
                x = torch.tensor([[at[c] for c in text]])
                while len(text) < 90 and not text.endswith("\n"):
                    logits, state = model(x, state)
                    x = torch.multinomial(F.softmax(logits[:, -1] / 0.6, -1), 1)
                    text += chars[x.item()]
                samples.write(f"[epoch {epoch}] {text.strip()}\n")


if __name__ == "__main__":
    main()
