"""Plankton per cubic metre from patches, float16 autocast with a loss scaler."""
import argparse
import json
import logging

import torch
import yaml
from torch import nn

log = logging.getLogger("plankton")


def patches(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(n, 48, generator=g)
    w = torch.randn(48, generator=torch.Generator().manual_seed(6))
    return x, (x @ w).abs() * 18000 + 500 * torch.rand(n, generator=g)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="plankton.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s] %(message)s")
    torch.manual_seed(cfg["seed"])
    x, y = patches(4000, 1)
    model = nn.Sequential(nn.Linear(48, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"])
    dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[cfg["precision"]]
    scaler = torch.amp.GradScaler("cpu", init_scale=cfg["init_scale"], growth_interval=cfg["growth_interval"], enabled=dtype is torch.float16)
    log.info("precision %s, initial loss scale %g, %d patches", cfg["precision"], scaler.get_scale(), len(x))
    with open("metrics.jsonl", "w") as out:
        for step in range(1, cfg["steps"] + 1):
            i = torch.randint(0, len(x), (cfg["batch_size"],))
            with torch.autocast("cpu", dtype=dtype, enabled=dtype is not torch.float32):
                guess = model(x[i]).squeeze(-1)
                loss = ((guess - y[i].to(guess.dtype)) ** 2).mean()
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            norm = nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
            before = scaler.get_scale()
            scaler.step(opt)
            scaler.update()
            if scaler.get_scale() < before:
                log.info("step %d: overflow, skipped the update, loss scale %g -> %g", step, before, scaler.get_scale())
            if step % 2 == 0:
                out.write(json.dumps({"step": step, "loss": round(loss.item(), 4), "grad_norm": round(norm.item(), 4), "loss_scale": scaler.get_scale(), "lr": cfg["lr"]}) + "\n")
            if step % 20 == 0:
                log.info("step %d/%d loss %.4f", step, cfg["steps"], loss.item())


if __name__ == "__main__":
    main()
