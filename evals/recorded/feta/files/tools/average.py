"""The mean of several weights: python tools/average.py OUT IN IN ..."""
import sys

import torch

parts = [torch.load(p, map_location="cpu") for p in sys.argv[2:]]
mean = {k: sum(p[k] for p in parts) / len(parts) for k in parts[0]}
if any(torch.isnan(v).any() for v in mean.values()):
    sys.exit("nan in the mean, one of the files is broken off")
torch.save(mean, sys.argv[1])
