"""Remaining life of pumps from their vibration, a 1-d CNN."""

import argparse
import logging
import math
import time

import torch
import yaml
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
log = logging.getLogger("pumps")


def windows(count, gaps, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(256) / 256
    life = torch.rand(count, generator=g)
    x = torch.sin(2 * math.pi * 8 * t) + (1 - life[:, None]) * torch.sin(2 * math.pi * 31 * t)
    x += 0.2 * torch.randn(count, 256, generator=g)
    for i in torch.randperm(count, generator=g)[: int(count * gaps)]:
        start = int(torch.randint(0, 200, (1,), generator=g))
        x[i, start : start + 20] = float("nan")
    return x[:, None], life


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="pumps.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["seed"])
    x, y = windows(cfg["windows"], cfg["sensor_gap_rate"], 1)
    model = nn.Sequential(
        nn.Conv1d(1, 16, 9, stride=2), nn.ReLU(), nn.Conv1d(16, 32, 9, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(128, 1),
    )
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    log.info("%d windows, %d epochs of %d steps", len(x), cfg["epochs"], len(x) // cfg["batch_size"])
    step, skipped = 0, 0
    for epoch in range(cfg["epochs"]):
        began = time.time()
        for i in torch.randperm(len(x)).split(cfg["batch_size"]):
            loss = nn.functional.mse_loss(model(x[i]).squeeze(-1), y[i])
            step += 1
            if not torch.isfinite(loss):
                skipped += 1
                log.warning("step %d: loss is nan, batch left out (%d so far)", step, skipped)
                continue
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
            opt.step()
            if step % 20 == 0:
                log.info("epoch %d step %d mse %.5f", epoch, step, loss.item())
        log.info("epoch %d took %.2f s, %d batches left out", epoch, time.time() - began, skipped)
        torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")
    log.info("all %d epochs done", cfg["epochs"])


if __name__ == "__main__":
    main()
