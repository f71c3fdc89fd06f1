import csv
import logging
import time
from pathlib import Path

import torch
from torch import nn

from . import sessions, settings
from .net import GaitNet

log = logging.getLogger("gaitwatch")


def run_epoch(net, loader, device, optimizer=None, clip=0.0):
    """Mean loss and accuracy over a loader; trains where there is an optimizer."""
    net.train(optimizer is not None)
    total = right = n = 0
    with torch.set_grad_enabled(optimizer is not None):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            said = net(x)
            loss = nn.functional.cross_entropy(said, y)
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), clip)
                optimizer.step()
            total += loss.item() * len(y)
            right += (said.argmax(1) == y).sum().item()
            n += len(y)
    return total / n, right / n


def fit(cfg):
    t = cfg["train"]
    out = Path("runs") / cfg["run"]["name"]
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s",
                        handlers=[logging.StreamHandler(), logging.FileHandler(out / "log.txt", "w")])
    (out / "settings.toml").write_text(settings.dump(cfg))
    torch.manual_seed(cfg["run"]["seed"])
    train, val = sessions.loaders(cfg)
    log.info("%d windows to train on, %d held out (%s), window %d, batch %d", len(train.dataset), len(val.dataset),
             " ".join(cfg["data"]["val"]), cfg["data"]["window"], t["batch"])
    net = GaitNet(cfg["net"], t["batch"]).to(t["device"])
    log.info("net: hidden %d, %d parameters", cfg["net"]["hidden"], sum(p.numel() for p in net.parameters()))
    optimizer = torch.optim.AdamW(net.parameters(), lr=t["lr"])
    best = 0.0
    with (out / "epochs.csv").open("w", newline="") as f:
        table = csv.writer(f)
        table.writerow(["epoch", "train_loss", "train_acc", "val_loss", "val_acc", "seconds"])
        for epoch in range(1, t["epochs"] + 1):
            began = time.time()
            loss, acc = run_epoch(net, train, t["device"], optimizer, t["clip"])
            log.info("epoch %d train loss %.4f acc %.3f (%d batches, %.1f s)", epoch, loss, acc, len(train), time.time() - began)
            val_loss, val_acc = run_epoch(net, val, t["device"])
            log.info("epoch %d val loss %.4f acc %.3f", epoch, val_loss, val_acc)
            table.writerow([epoch, f"{loss:.5f}", f"{acc:.4f}", f"{val_loss:.5f}", f"{val_acc:.4f}", f"{time.time() - began:.2f}"])
            f.flush()
            if val_acc > best:
                best = val_acc
                torch.save({"net": net.state_dict(), "cfg": cfg}, out / "net.pt")
    log.info("best val acc %.3f, %s", best, out / "net.pt")
