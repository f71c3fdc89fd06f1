"""Lithology from well logs: a deep MLP."""
import argparse
import json

import torch
import yaml
from torch import nn


def curves(n, dim, classes, seed):
    g = torch.Generator().manual_seed(seed)
    mix = torch.randn(dim, classes, generator=torch.Generator().manual_seed(5))
    x = torch.randn(n, dim, generator=g)
    return x, (x @ mix + 0.5 * torch.randn(n, classes, generator=g)).argmax(-1)


def build(cfg):
    widths = [cfg["inputs"]] + [cfg["width"]] * cfg["depth"]
    layers = []
    for a, b in zip(widths, widths[1:], strict=False):
        layers += [nn.Linear(a, b), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(widths[-1], cfg["classes"]))
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, std=cfg["init_std"])
            nn.init.zeros_(m.bias)
    return model


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="conf/wells.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["train"]["seed"])
    t = cfg["train"]
    x, y = curves(6000, cfg["model"]["inputs"], cfg["model"]["classes"], 1)
    vx, vy = curves(1000, cfg["model"]["inputs"], cfg["model"]["classes"], 2)
    model = build(cfg["model"])
    opt = torch.optim.AdamW(model.parameters(), lr=t["lr"], weight_decay=t["weight_decay"])
    total = t["steps"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / t["warmup"], 1 - s / total))
    print(json.dumps({"config": cfg, "parameters": sum(p.numel() for p in model.parameters())}))
    for step in range(total):
        i = torch.randint(0, len(x), (t["batch_size"],))
        loss = nn.functional.cross_entropy(model(x[i]), y[i])
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), t["max_norm"])
        opt.step()
        sched.step()
        if step % t["log_every"] == 0:
            print(json.dumps({"step": step, "loss": float(f"{loss.item():.6g}"), "grad_norm": float(f"{norm.item():.6g}"),
                              "lr": float(f"{sched.get_last_lr()[0]:.4g}")}), flush=True)
        if step % 100 == 99:
            with torch.no_grad():
                v = model(vx)
            print(json.dumps({"step": step, "val_loss": float(f"{nn.functional.cross_entropy(v, vy).item():.6g}"),
                              "val_acc": (v.argmax(-1) == vy).float().mean().item()}), flush=True)


if __name__ == "__main__":
    main()
