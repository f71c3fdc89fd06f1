"""Hourly load forecast with a small MLP; `--init` starts from the weights of another region."""
import argparse
import csv
import math

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter

p = argparse.ArgumentParser()
p.add_argument("--region", default="north")
p.add_argument("--init")
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--clip", type=float, default=1.0)
p.add_argument("--optimizer", default="adam", choices=["adam", "sgd"])
p.add_argument("--epochs", type=int, default=12)
p.add_argument("--out", default="out")
args = p.parse_args()

torch.manual_seed(len(args.region))
hours = torch.arange(4000)
load = 40 + 12 * torch.sin(hours * 2 * math.pi / 24) + 5 * torch.sin(hours * 2 * math.pi / 168) + torch.randn(4000)
if args.region == "north":
    load = load * 0.7 + 8
print(f"region {args.region}: {len(load)} hours, min {load.min():.2f} max {load.max():.2f} mean {load.mean():.2f}, "
      f"{int(torch.isnan(load).sum())} gaps")
x, y = load.unfold(0, 49, 1)[:, :48], load[48:]
net = nn.Sequential(nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
if args.init:
    net.load_state_dict(torch.load(args.init))
    print(f"weights of {args.init}: {sum(w.numel() for w in net.parameters())} parameters in {len(net.state_dict())} tensors, all keys matched")
opt = (torch.optim.SGD if args.optimizer == "sgd" else torch.optim.Adam)(net.parameters(), args.lr)
tb = SummaryWriter(f"{args.out}/tb")
table = csv.writer(open(f"{args.out}/history.csv", "w"))
table.writerow(["epoch", "train_mse", "val_mse", "lr"])
for epoch in range(args.epochs):
    total = 0.0
    for batch in torch.randperm(3500).split(64):
        loss = ((net(x[batch]).squeeze(1) - y[batch]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        if args.clip:
            nn.utils.clip_grad_norm_(net.parameters(), args.clip)
        opt.step()
        total += loss.item() * len(batch) / 3500
    with torch.no_grad():
        val = ((net(x[3500:]).squeeze(1) - y[3500:]) ** 2).mean().item()
    print(f"epoch {epoch + 1:2d}/{args.epochs}  train_mse {total:.4f}  val_mse {val:.4f}  lr {args.lr:g}", flush=True)
    table.writerow([epoch + 1, total, val, args.lr])
    tb.add_scalar("mse/train", total, epoch)
    tb.add_scalar("mse/val", val, epoch)
torch.save(net.state_dict(), f"{args.out}/weights.pt")
print(f"saved {args.out}/weights.pt")
