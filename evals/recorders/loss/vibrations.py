"""Contrastive embeddings of machine vibrations (two views of a clip attract)."""
import argparse
import csv

import torch
import yaml
from torch import nn


def clips(n, seed):
    g = torch.Generator().manual_seed(seed)
    kinds = torch.randn(16, 40, generator=torch.Generator().manual_seed(12))
    y = torch.randint(0, 16, (n,), generator=g)
    return kinds[y], y


def view(x, g):
    return x + 0.5 * torch.randn(x.shape, generator=g)


def nearest(z, y):
    """Share of clips whose nearest neighbour is of the same machine."""
    d = z @ z.T - 2 * torch.eye(len(z))
    return (y[d.argmax(1)] == y).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="views.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["seed"])
    g = torch.Generator().manual_seed(cfg["seed"])
    x, _ = clips(4000, 1)
    vx, vy = clips(400, 2)
    vx = view(vx, g)
    encoder = nn.Sequential(nn.Linear(40, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64))
    predictor = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64)) if cfg["predictor"] else nn.Identity()
    opt = torch.optim.SGD([*encoder.parameters(), *predictor.parameters()], lr=cfg["lr"], momentum=0.9, weight_decay=1e-4)
    print(f"config {cfg}", flush=True)
    with open("metrics.csv", "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["step", "loss", "grad_norm", "emb_std", "lr"])
        for step in range(1, cfg["steps"] + 1):
            i = torch.randint(0, len(x), (cfg["batch_size"],))
            a, b = encoder(view(x[i], g)), encoder(view(x[i], g))
            goal = (b.detach(), a.detach()) if cfg["stop_gradient"] else (b, a)
            cos = nn.functional.cosine_similarity
            loss = -(cos(predictor(a), goal[0]).mean() + cos(predictor(b), goal[1]).mean()) / 2
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(encoder.parameters(), cfg["clip"])
            opt.step()
            if step % 5 == 0:
                spread = nn.functional.normalize(a.detach(), dim=1).std(0).mean().item()
                out.writerow([step, f"{loss.item():.6f}", f"{norm.item():.6f}", f"{spread:.6f}", cfg["lr"]])
            if step % cfg["probe_every"] == 0:
                encoder.eval()
                with torch.no_grad():
                    score = nearest(nn.functional.normalize(encoder(vx), dim=1), vy)
                encoder.train()
                print(f"step {step:4d}  loss {loss.item():.4f}  1-nn accuracy {score:.3f}", flush=True)


if __name__ == "__main__":
    main()
