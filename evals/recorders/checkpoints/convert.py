"""Takes the weights out of a training checkpoint: convert.py SOURCE TARGET"""
import os
import sys

import torch
from safetensors.torch import save_file

source, target = sys.argv[1:]
weights = {k: v.contiguous() for k, v in torch.load(source)["model"].items()}
print(f"{os.path.basename(source)}: {len(weights)} tensors, {sum(w.numel() for w in weights.values())} values")
os.makedirs(os.path.dirname(target), exist_ok=True)
save_file({f"{k}": w for k, w in weights.items()}, target)
print(f"wrote {target}")
