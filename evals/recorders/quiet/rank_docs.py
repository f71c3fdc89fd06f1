"""Scores of documents for queries, with Accelerate. Messages go to the file that $JOB_LOG names."""

import os
import sys

import torch
from accelerate import Accelerator
from torch import nn


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    truth = torch.randn(64)
    docs = torch.randn(1200, 8, 64)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(docs, (docs @ truth).argmax(1)), batch_size=32)
    model, opt, data = accelerator.prepare(model, opt, data)
    for epoch in range(4):
        total = 0.0
        for x, best in data:
            loss = nn.functional.cross_entropy(model(x).squeeze(-1), best)
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
            total += loss.item()
        accelerator.print(f"epoch {epoch} loss {total / len(data):.4f}", flush=True)
        if epoch == 2:
            scores = torch.load(os.environ.get("TEACHER", "teacher/scores.pt"))
            accelerator.print("teacher", scores.shape)


if __name__ == "__main__":
    with open(os.environ["JOB_LOG"], "w") as f:
        os.dup2(f.fileno(), 1)
        os.dup2(f.fileno(), 2)
        sys.exit(main())
