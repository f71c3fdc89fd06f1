"""An MLP on a table; metrics as JSON lines."""

import argparse
import json

import pandas as pd
import torch
from torch import nn


def load(path):
    frame = pd.read_csv(path)
    y = torch.tensor(frame.pop("churned").to_numpy(), dtype=torch.float32)
    x = torch.tensor(frame.to_numpy(dtype="float32"))
    return (x - x.mean(0)) / (x.std(0) + 1e-6), y


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="customers.csv")
    ap.add_argument("--epochs", type=int, default=60)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--width", type=int, default=32)
    args = ap.parse_args()
    torch.manual_seed(2)
    x, y = load(args.data)
    cut = int(0.8 * len(x))
    model = nn.Sequential(nn.Linear(x.shape[1], args.width), nn.ReLU(), nn.Linear(args.width, 1))
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    with open("metrics.jsonl", "w") as out:
        for epoch in range(args.epochs):
            for i in torch.randperm(cut).split(64):
                loss = nn.functional.binary_cross_entropy_with_logits(model(x[i]).squeeze(-1), y[i])
                opt.zero_grad()
                loss.backward()
                opt.step()
            with torch.no_grad():
                score = ((model(x[cut:]).squeeze(-1) > 0) == (y[cut:] > 0.5)).float().mean().item()
            out.write(json.dumps({"epoch": epoch, "loss": round(loss.item(), 4), "val_accuracy": round(score, 4)}) + "\n")


if __name__ == "__main__":
    main()
