"""Forecast every hour of a period and compare with what came: python backtest.py --run out/NAME --from DAY"""
import argparse
import csv
import json
import os
from datetime import datetime, timedelta

import numpy as np
import torch

from hydro import nets, series, windows

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--run", required=True)
ap.add_argument("--from", dest="since", required=True)
ap.add_argument("--csv", dest="table", help="write each forecast")
ap.add_argument("--gauge", default="data/gauge_hourly.csv")
args = ap.parse_args()

state = torch.load(os.path.join(args.run, "best.pt"), map_location="cpu")
said = state["args"]
scale = series.Scale(state["mean"], state["std"])
since = datetime.fromisoformat(args.since)
times, rows = series.read(args.gauge, since=since - timedelta(hours=said["past"]))
x, y = windows.make(times, scale(rows), said["past"], said["ahead"])
net = nets.build(said["net"], past=said["past"], features=state["features"], width=said["width"], dropout=0.0).eval()
net.load_state_dict(state["net"])
with torch.no_grad():
    y_hat = net(torch.from_numpy(x)).numpy()
now, then, said_level = scale.level(x[:, -1, 0]), scale.level(y), scale.level(y_hat)
first = times[said["past"] - 1]
print(f"{args.run}: {len(x)} forecasts from {first} on, {said['ahead']} h ahead")
weeks = np.arange(len(x)) // 168
for week in np.unique(weeks):
    part = weeks == week
    print(f"  week of {(first + timedelta(hours=168 * int(week))).date()}: MAE {np.abs(said_level - then)[part].mean():5.1f} cm, "
          f"persistence {np.abs(now - then)[part].mean():5.1f} cm, level {then[part].mean():.0f} +- {then[part].std():.0f} cm")
result = {"mae_cm": round(float(np.abs(said_level - then).mean()), 3), "persistence_cm": round(float(np.abs(now - then).mean()), 3)}
print(f"all: MAE {result['mae_cm']:.1f} cm, persistence {result['persistence_cm']:.1f} cm")
json.dump(result | {"from": args.since, "n": len(x)}, open(os.path.join(args.run, "backtest.json"), "w"))
if args.table:
    with open(args.table, "w", newline="") as f:
        w = csv.writer(f)
        w.writerow(["made_at", "now_cm", "forecast_cm", "came_cm"])
        w.writerows(zip(times[said["past"] - 1:], now.round(1), said_level.round(1), then.round(1)))
