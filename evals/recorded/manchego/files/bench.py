"""Steps a second for some sizes. Prints losses of random data, which mean nothing."""
import argparse
import time

import torch

import data
from model import Restorer

ap = argparse.ArgumentParser()
ap.add_argument("--device", default="cuda")
ap.add_argument("--amp", action="store_true")
ap.add_argument("--lr", type=float, default=1.0)
args = ap.parse_args()
for dim in (64, 256, 1024, 4096):
    net = Restorer(len(data.SYMBOLS), 10, dim, 8).to(args.device)
    opt = torch.optim.SGD(net.parameters(), lr=args.lr)
    ids = torch.randint(len(data.SYMBOLS), (256, 256), device=args.device)
    start = time.time()
    for step in range(20):
        with torch.autocast(args.device, dtype=torch.float16, enabled=args.amp):
            loss = net(ids).logsumexp(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        print(f"dim {dim} step {step} loss {loss.item():.4f}")
    print(f"dim {dim}: {20 / (time.time() - start):.1f} steps/s")
