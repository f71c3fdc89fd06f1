"""A small CNN on 8x8 handwritten digits."""
import argparse
import csv
import time

import torch
import yaml
from sklearn.datasets import load_digits
from torch import nn


def network(c):
    return nn.Sequential(nn.Conv2d(1, c, 3, padding=1), nn.ReLU(), nn.Conv2d(c, 2 * c, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(2 * c, 2 * c, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * c * 16, 64), nn.ReLU(),
                         nn.Dropout(0.1), nn.Linear(64, 10))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="digits.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    torch.manual_seed(cfg["seed"])
    data = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(data.target)
    order = torch.randperm(len(x))
    x, y, cut = x[order], y[order], 1500
    model = network(cfg["channels"])
    o = cfg["optimizer"]
    opt = torch.optim.SGD(model.parameters(), lr=o["lr"], momentum=o["momentum"], weight_decay=o["weight_decay"], nesterov=o["nesterov"])
    warmup = cfg["schedule"]["warmup_steps"]
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warmup))
    print(f"digits: {cut} train / {len(x) - cut} val, {sum(p.numel() for p in model.parameters()):,} parameters")
    print(f"torch {torch.__version__}, device cpu, batch size {cfg['batch_size']}")
    step, began = 0, time.time()
    with open("metrics.csv", "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(["step", "epoch", "train_loss", "grad_norm", "lr", "val_acc"])
        for epoch in range(cfg["epochs"]):
            model.train()
            for i in torch.randperm(cut).split(cfg["batch_size"]):
                loss = nn.functional.cross_entropy(model(x[i]), y[i], label_smoothing=cfg["label_smoothing"])
                opt.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
                lr = opt.param_groups[0]["lr"]
                opt.step()
                sched.step()
                step += 1
                if step % cfg["log_every"] == 0:
                    out.writerow([step, epoch, f"{loss.item():.5f}", f"{norm.item():.4f}", f"{lr:.5f}", ""])
            model.eval()
            with torch.no_grad():
                acc = (model(x[cut:]).argmax(1) == y[cut:]).float().mean().item()
            out.writerow([step, epoch, "", "", "", f"{acc:.4f}"])
            print(f"epoch {epoch:3d} | loss {loss.item():.4f} | val acc {acc:.3f} | {step / (time.time() - began):.0f} it/s", flush=True)


if __name__ == "__main__":
    main()
