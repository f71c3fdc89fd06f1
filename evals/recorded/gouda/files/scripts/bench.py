"""Steps a second of a config, without data: python scripts/bench.py --config letters-small"""
import argparse
import time

import torch

from lantern import config
from lantern.data import Alphabet
from lantern.model import LetterModel


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="letters-small")
    ap.add_argument("--steps", type=int, default=50)
    ap.add_argument("--profile", action="store_true")
    args = ap.parse_args()
    cfg = config.load(args.config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n = len(Alphabet())
    model = LetterModel(cfg.model, n).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randint(n, (cfg.data.batch_size, cfg.model.context), device=device)
    for step in range(args.steps):
        if step == 10:
            start = time.time()
        loss = model(x, x)[1]
        loss.backward()
        opt.step()
        opt.zero_grad()
        print("bench step", step, "loss", loss.item())  # also syncs
    print(f"{(args.steps - 10) / (time.time() - start):.2f} it/s on {device}")


if __name__ == "__main__":
    main()
