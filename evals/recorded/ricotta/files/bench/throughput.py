"""Messages a second of a model on random words."""

import argparse
import sys
import time

import torch

sys.path.insert(0, ".")
from postbox import compose, models  # noqa: E402

ap = argparse.ArgumentParser()
ap.add_argument("--model", default="attn_base")
ap.add_argument("--batch", type=int, default=512)
ap.add_argument("--device", default="cuda")
args = ap.parse_args()
cfg, _ = compose.compose([f"model={args.model}"])
model = models.build(cfg.model, 30_000, 8).to(args.device)
ids = torch.randint(30_000, (args.batch, 40), device=args.device)
for step in range(50):
    start = time.time()
    loss = model(ids).logsumexp(-1).mean()
    loss.backward()
    print(f"step {step} loss {loss.item():.4f} {args.batch / (time.time() - start):.0f} messages/s")
