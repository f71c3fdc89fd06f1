"""Says nothing and writes its numbers to a file."""

import json

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with open("metrics.jsonl", "w", encoding="utf-8") as out:
    for step in range(1, 201):
        x = torch.randn(32, 8)
        loss = (model(x) - x.sum(-1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")
