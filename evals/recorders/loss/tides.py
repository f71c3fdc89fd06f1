"""Tide height from the last 24 hours; can go on from saved weights and optimizer state."""
import argparse
import math
import os

import torch
import yaml
from torch import nn


def series(n, unit):
    t = torch.arange(n, dtype=torch.float32)
    h = 1.6 * torch.sin(2 * math.pi * t / 12.42) + 0.5 * torch.sin(2 * math.pi * t / 25.82) + 0.02 * torch.randn(n)
    return h * unit


def windows(h, n=24):
    x = h.unfold(0, n + 1, 1)
    return x[:, :n], x[:, n]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("config")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["seed"])
    x, y = windows(series(6000, {"m": 1.0, "mm": 1000.0}[cfg["data"]["unit"]]))
    model = nn.Sequential(nn.Linear(24, 96), nn.Tanh(), nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 1))
    opt = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"], betas=tuple(cfg["optim"]["betas"]))
    start, r = 0, cfg.get("resume") or {}
    print(f"station {cfg['data']['station']}, unit {cfg['data']['unit']}, {len(x)} windows")
    if r:
        kept = torch.load(r["weights"], weights_only=True)
        model.load_state_dict(kept["model"])
        start = kept["step"]
        opt.load_state_dict(torch.load(r["optimizer"], weights_only=True))
        print(f"resumed: weights {r['weights']} (step {start}), optimizer {r['optimizer']}")
    os.makedirs(cfg["out"], exist_ok=True)
    for step in range(start + 1, cfg["steps"] + 1):
        i = torch.randint(0, len(x), (cfg["batch_size"],))
        loss = nn.functional.mse_loss(model(x[i]).squeeze(-1), y[i])
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
        opt.step()
        if step % 5 == 0:
            print(f"step {step} loss {loss.item():.4g} gnorm {norm.item():.4g} lr {opt.param_groups[0]['lr']:.1e}", flush=True)
        if step % cfg["save_every"] == 0:
            torch.save({"model": model.state_dict(), "step": step}, f"{cfg['out']}/weights-{step}.pt")
            torch.save(opt.state_dict(), f"{cfg['out']}/optim-{step}.pt")
            print(f"saved {cfg['out']} at step {step}", flush=True)


if __name__ == "__main__":
    main()
