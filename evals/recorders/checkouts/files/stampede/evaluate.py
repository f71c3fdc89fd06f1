"""Accuracy and confusions of a checkpoint: python evaluate.py CKPT [--csv FILE]"""
import argparse
from collections import Counter

import torch

from stampede.data import NAMES, read
from stampede.module import StampNet

ap = argparse.ArgumentParser(description=__doc__)
ap.add_argument("ckpt")
ap.add_argument("--csv", default="data/holdout.csv")
args = ap.parse_args()
net = StampNet.load_from_checkpoint(args.ckpt, map_location="cpu").eval()
x, y = read(args.csv)
with torch.no_grad():
    said = net(x).argmax(1)
print(f"{args.csv}: accuracy {(said == y).float().mean():.4f} of {len(y)}")
for (a, b), n in Counter((NAMES[a], NAMES[b]) for a, b in zip(y.tolist(), said.tolist()) if a != b).most_common(8):
    print(f"  {a} taken for {b}: {n}")
