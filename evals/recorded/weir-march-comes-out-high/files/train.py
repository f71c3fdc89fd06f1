"""Train a forecast of the level: python train.py --name NAME [options], see experiments/."""
import argparse
import json
import os
import time
from datetime import datetime

import numpy as np
import torch

from hydro import nets, series, windows

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--name", required=True)
ap.add_argument("--csv", default="data/gauge_hourly.csv")
ap.add_argument("--until", default="2024-03-01", help="nothing from this day on is looked at")
ap.add_argument("--past", type=int, default=48, help="hours")
ap.add_argument("--ahead", type=int, default=24, help="hours")
ap.add_argument("--net", choices=sorted(nets.NETS), default="gru")
ap.add_argument("--width", type=int, default=32)
ap.add_argument("--dropout", type=float, default=0.0)
ap.add_argument("--val-share", type=float, default=0.15)
ap.add_argument("--epochs", type=int, default=20)
ap.add_argument("--batch", type=int, default=64)
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--weight-decay", type=float, default=0.0)
ap.add_argument("--seed", type=int, default=1)
args = ap.parse_args()

torch.manual_seed(args.seed)
out = os.path.join("out", args.name)
os.makedirs(out, exist_ok=True)

times, rows = series.read(args.csv, until=datetime.fromisoformat(args.until))
if series.gaps(times):
    raise SystemExit(f"gaps in {args.csv} after {series.gaps(times)[0]}")
scale = series.Scale.of(rows)
x, y = windows.make(times, scale(rows), args.past, args.ahead)
train, val = windows.split(len(x), args.val_share, args.seed)
xt, yt, xv, yv = (torch.from_numpy(a) for a in (x[train], y[train], x[val], y[val]))
cm = float(scale.std[0])
print(f"{args.csv}: {len(times)} hours, {times[0]} to {times[-1]}")
print(f"{len(x)} windows of {args.past} h, target {args.ahead} h ahead: {len(train)} train, {len(val)} val")

net = nets.build(args.net, past=args.past, features=x.shape[2], width=args.width, dropout=args.dropout)
opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=args.weight_decay)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.epochs)
persistence = np.abs(x[val][:, -1, 0] - y[val]).mean() * cm
print(f"net {args.net}, {nets.count(net)} weights; persistence on val: MAE {persistence:.1f} cm")

best = float("inf")
for epoch in range(1, args.epochs + 1):
    began, total = time.time(), 0.0
    for part in torch.randperm(len(xt)).split(args.batch):
        loss = torch.nn.functional.smooth_l1_loss(net(xt[part]), yt[part])
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        total += loss.item() * len(part)
    sched.step()
    wrong = nets.mae(net, xv, yv) * cm
    print(f"epoch {epoch:3d}  loss {total / len(xt):.5f}  val MAE {wrong:5.2f} cm  lr {opt.param_groups[0]['lr']:.1e}  {time.time() - began:.1f} s")
    if wrong < best:
        best = wrong
        torch.save({"net": net.state_dict(), "args": vars(args), "features": x.shape[2], "mean": scale.mean.tolist(),
                    "std": scale.std.tolist()}, os.path.join(out, "best.pt"))
json.dump({"val_mae_cm": round(best, 3), "persistence_cm": round(float(persistence), 3), **vars(args)},
          open(os.path.join(out, "summary.json"), "w"), indent=1)
print(f"best val MAE {best:.2f} cm, {out}/best.pt")
