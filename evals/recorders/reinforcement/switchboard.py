"""A transformer with one switch layer (one expert a token, bounded capacity) on character sums; torch only."""

import csv
import json
import sys

import torch
import yaml
from torch import nn

config = yaml.safe_load(open(sys.argv[1]))
torch.manual_seed(config["seed"])
DIM, EXPERTS = config["dim"], config["experts"]


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, DIM, 2 * DIM) / DIM**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * DIM, DIM) / (2 * DIM) ** 0.5)
        self.stats = {}

    def forward(self, x):
        tokens = x.reshape(-1, DIM)
        p = self.router(tokens).softmax(-1)
        gate, chosen = p.max(-1)
        places = nn.functional.one_hot(chosen, EXPERTS)
        capacity = int(config["capacity_factor"] * len(tokens) / EXPERTS)
        order = (places.cumsum(0) * places).sum(-1)
        kept = order <= capacity
        out = torch.zeros_like(tokens)
        for e in range(EXPERTS):
            mine = kept & (chosen == e)
            out[mine] = (nn.functional.gelu(tokens[mine] @ self.up[e]) @ self.down[e]) * gate[mine, None]
        load = places.float().mean(0)
        self.aux = EXPERTS * (load * p.mean(0)).sum()
        self.stats = {"capacity": capacity, "overflow": 1 - kept.float().mean().item(), "max_load": load.max().item(), "min_load": load.min().item()}
        return out.view_as(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.before = nn.Embedding(16, DIM), nn.Embedding(16, DIM)
        self.attention = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.n1, self.n2, self.n3 = nn.LayerNorm(DIM), nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.switch, self.head = Switch(), nn.Linear(DIM, 16)

    def forward(self, ids):
        x = self.embed(ids) + self.before(ids.roll(1, 1))
        h = self.n1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return self.head(self.n3(x + self.switch(self.n2(x))))


def batch(count):
    ids = torch.randint(0, 16, (count, 16))
    return ids, (ids * 5 + ids.roll(1, 1)) % 16


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
print(json.dumps(config))
with open("train.csv", "w", buffering=1) as f:
    out = csv.writer(f)
    out.writerow(["step", "loss", "aux", "accuracy", "capacity", "overflow", "max_load", "min_load"])
    for step in range(1, config["steps"] + 1):
        ids, target = batch(config["batch_size"])
        logits = model(ids)
        task = nn.functional.cross_entropy(logits.flatten(0, 1), target.flatten())
        loss = task + config["aux_coef"] * model.switch.aux
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 10 == 0:
            s, right = model.switch.stats, (logits.argmax(-1) == target).float().mean().item()
            out.writerow([step, f"{task.item():.4f}", f"{model.switch.aux.item():.4f}", f"{right:.4f}", s["capacity"], *[f"{s[k]:.3f}" for k in ("overflow", "max_load", "min_load")]])
            if step % 50 == 0:
                print(f"step {step} loss {task.item():.4f} aux {model.switch.aux.item():.3f} acc {right:.3f}", flush=True)
