"""Train a small classifier on records of floats, one process."""

import argparse
import json
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, path, classes):
        with open(path, encoding="utf-8") as lines:
            self.rows = [json.loads(line) for line in lines]
        self.classes = classes

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return torch.tensor(row["x"]), torch.tensor(row["label"])


def build(width, classes, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def save(model, optimizer, step, folder):
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"step_{step}.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path)
    print(f"saved {path}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data/train.jsonl")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", default="out")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--resume")
    args = parser.parse_args()

    torch.manual_seed(0)
    print(f"config: {vars(args)}", flush=True)
    model = build(8, args.classes, args.hidden).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    step = 0
    if args.resume:
        state = torch.load(args.resume, map_location=args.device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
        print(f"resumed from {args.resume} at step {step}", flush=True)
    loader = DataLoader(Records(args.data, args.classes), args.batch, shuffle=True, num_workers=args.workers)
    while step < args.steps:
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x.to(args.device)), y.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 5 == 0:
                print(f"step {step}/{args.steps} loss {loss.item():.4f} lr {args.lr:g}", flush=True)
            if step % args.save_every == 0:
                save(model, optimizer, step, args.out)
            if step >= args.steps:
                break
    print(f"training finished after {step} steps", flush=True)


if __name__ == "__main__":
    main()
