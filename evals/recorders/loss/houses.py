"""Price regression on shards of listings."""
import argparse
import csv
import glob
import json
import random

import torch
from torch import nn

FIELDS = ["area", "rooms", "floor", "age", "distance", "light"]


def make(folder, shards, rows):
    rng = random.Random(11)
    for s in range(shards):
        with open(f"{folder}/listings-{s:02d}.csv", "w", newline="") as f:
            out = csv.writer(f)
            out.writerow(["id", *FIELDS, "price"])
            for r in range(rows):
                a, n, fl, age, d, li = rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 1), rng.random()
                price = 1.4 * a + 0.6 * n - 0.4 * d * a + 0.3 * li - 0.2 * age + rng.gauss(0, 0.1)
                out.writerow([f"{s:02d}{r:05d}", *(f"{v:.3f}" for v in (a, n, fl, age, d, li, price))])


def rows(folder, size):
    for path in sorted(glob.glob(f"{folder}/*.csv")):
        table = list(csv.DictReader(open(path)))
        for i in range(0, len(table) - size + 1, size):
            part = table[i:i + size]
            x = torch.tensor([[float(r[k] or "nan") for k in FIELDS] for r in part])
            yield path, i, x, torch.tensor([float(r["price"]) for r in part])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--make", type=int, default=0)
    ap.add_argument("--data", default="data")
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--clip", type=float, default=1.0)
    args = ap.parse_args()
    if args.make:
        return make(args.data, args.make, 480)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(len(FIELDS), 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    print(f"args: {vars(args)}")
    step = 0
    with open("train.jsonl", "w") as out:
        for epoch in range(args.epochs):
            for path, row, x, y in rows(args.data, args.batch_size):
                loss = nn.functional.mse_loss(model(x).squeeze(-1), y)
                opt.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
                opt.step()
                step += 1
                out.write(json.dumps({"step": step, "epoch": epoch, "file": path, "row": row, "loss": round(loss.item(), 5),
                                      "grad_norm": round(norm.item(), 4), "lr": args.lr}) + "\n")
                if step % 15 == 0:
                    print(f"step {step:4d}  mse {loss.item():.4f}  gnorm {norm.item():.3f}", flush=True)
    torch.save(model.state_dict(), "model.bin")


if __name__ == "__main__":
    main()
