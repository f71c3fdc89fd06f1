"""Melodies: a transformer over notes with truncated sequences and a memory of the last segment."""

import csv
import json

import torch
import yaml
from torch import nn

config = yaml.safe_load(open("melodies.yaml"))
B, T, D, H = config["batch"], config["segment"], config["dim"], config["heads"]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = (t.reshape(x.shape[0], -1, H, D // H).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(x.shape[0], -1, D))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.notes = nn.Embedding(64, D)
        self.mix = Attention()
        self.norm = nn.LayerNorm(D)
        self.cell = nn.GRUCell(D, D)
        self.head = nn.Linear(2 * D, 64)

    def forward(self, ids, memory):
        h = self.norm(self.notes(ids) + self.mix(self.notes(ids)))
        memory = self.cell(h.mean(1), memory)
        wide = memory.unsqueeze(1).expand(-1, h.shape[1], -1)
        return self.head(torch.cat([h, wide], -1)), memory


torch.manual_seed(config["seed"])
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
songs = torch.randint(0, 64, (config["songs"], 4 * T + 1)).cumsum(1) % 64
print(json.dumps(config))
print(f"{len(songs)} songs of {songs.shape[1]} notes, {len(songs) / B:.2f} batches")
with open("metrics.csv", "w") as f:
    out = csv.writer(f)
    out.writerow(["epoch", "batch", "segment", "loss"])
    for epoch in range(config["epochs"]):
        memory = torch.zeros(B, D)
        for number, batch in enumerate(songs[torch.randperm(len(songs))].split(B)):
            for segment in range(4):
                part = batch[:, segment * T:(segment + 1) * T + 1]
                logits, memory = model(part[:, :-1], memory.detach())
                loss = nn.functional.cross_entropy(logits.reshape(B, T, 64).flatten(0, 1), part[:, 1:].reshape(-1))
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                out.writerow([epoch, number, segment, f"{loss.item():.4f}"])
                f.flush()
            if number % 5 == 0:
                print(f"epoch {epoch} batch {number} loss {loss.item():.4f}", flush=True)
