"""Small ViT on 8x8 digits. Pretrain, then fine-tune on the shifted set: train.py pretrain.yaml; train.py finetune.yaml"""
import argparse
import json
import os
import time

import torch
import yaml
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F


class ViT(nn.Module):
    def __init__(self, dim, depth, heads, classes=10):
        super().__init__()
        self.patch = nn.Linear(4, dim)
        self.pos = nn.Parameter(torch.zeros(1, 16, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, dim * 2, 0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)

    def forward(self, x):
        x = x.unfold(1, 2, 2).unfold(2, 2, 2).reshape(len(x), 16, 4)
        return self.head(self.blocks(self.patch(x) + self.pos).mean(1))


def data(cfg):
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x, dtype=torch.float32).view(-1, 8, 8) / 16, torch.tensor(y)
    if cfg.get("shift"):
        x = torch.roll(x, cfg["shift"], 2)
    n = cfg.get("train_rows", 1400)
    return x[:n], y[:n], x[1400:], y[1400:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("config")
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    cfg = yaml.safe_load(open(args.config))
    torch.manual_seed(args.seed)
    x, y, vx, vy = data(cfg)
    model = ViT(**cfg["model"])
    if cfg.get("init_from"):
        print(f"=> loading weights from {cfg['init_from']}")
        ckpt = torch.load(cfg["init_from"], map_location="cpu")
        model.load_state_dict(ckpt["model"], strict=cfg.get("strict", True))
        print(f"=> loaded {cfg['init_from']} (epoch {ckpt['epoch']}, val acc {ckpt['acc']:.4f})")
    if cfg.get("data_parallel"):
        model = nn.DataParallel(model)
    if cfg.get("compile"):
        model = torch.compile(model, backend="eager")
    opt = torch.optim.AdamW(model.parameters(), cfg["lr"], weight_decay=0.01)
    os.makedirs(cfg["out"], exist_ok=True)
    log = open(os.path.join(cfg["out"], "metrics.jsonl"), "a")
    print(f"{sum(w.numel() for w in model.parameters())} parameters, {len(x)} train / {len(vx)} val images")
    for epoch in range(cfg["epochs"]):
        began, total = time.time(), 0.0
        for batch in torch.randperm(len(x)).split(cfg["batch_size"]):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.item() * len(batch)
        with torch.no_grad():
            logits = model(vx)
        row = {"epoch": epoch, "train_loss": round(total / len(x), 4), "val_loss": round(F.cross_entropy(logits, vy).item(), 4),
               "val_acc": round((logits.argmax(1) == vy).float().mean().item(), 4), "grad_norm": round(norm.item(), 3)}
        print(f"Epoch [{epoch:3d}/{cfg['epochs']}] " + " ".join(f"{k}: {v}" for k, v in row.items() if k != "epoch")
              + f" ({time.time() - began:.1f}s)", flush=True)
        log.write(json.dumps(row) + "\n")
        state = {"model": model.state_dict(), "epoch": epoch, "acc": row["val_acc"]}
        if cfg.get("save_args"):
            state["args"] = args
        torch.save(state, os.path.join(cfg["out"], "model_latest.pth.tar"))
    print("finished")


if __name__ == "__main__":
    main()
