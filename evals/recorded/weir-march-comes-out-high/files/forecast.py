"""One forecast: python forecast.py --run out/NAME --at "2024-03-20 06:00" """
import argparse
import os
from datetime import datetime, timedelta

import torch

from hydro import nets, series, windows

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("--run", required=True)
ap.add_argument("--at", required=True)
ap.add_argument("--gauge", default="data/gauge_hourly.csv")
args = ap.parse_args()
state = torch.load(os.path.join(args.run, "best.pt"), map_location="cpu")
said, scale, at = state["args"], series.Scale(state["mean"], state["std"]), datetime.fromisoformat(args.at)
times, rows = series.read(args.gauge, until=at + timedelta(hours=1), since=at - timedelta(hours=said["past"] - 1))
x, _ = windows.make(times, scale(rows), said["past"], 0)
net = nets.build(said["net"], past=said["past"], features=state["features"], width=said["width"], dropout=0.0).eval()
net.load_state_dict(state["net"])
print(f"{at + timedelta(hours=said['ahead'])}: {scale.level(net(torch.from_numpy(x)).item()):.0f} cm (now {rows[-1, 0]:.0f})")
