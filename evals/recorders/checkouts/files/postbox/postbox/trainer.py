"""The loop: epochs over the loader, validation after each, the best weights kept."""

import csv
import logging
import time
from pathlib import Path

import torch
from torch.nn import functional as F

log = logging.getLogger(__name__)


def optimizer(model, cfg):
    if cfg.name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    if cfg.name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    raise SystemExit(f"optim={cfg.name} is not built in")


@torch.no_grad()
def validate(model, loader):
    model.eval()
    loss = right = count = 0
    for ids, topic in loader:
        logits = model(ids)
        loss += F.cross_entropy(logits, topic, reduction="sum").item()
        right += (logits.argmax(-1) == topic).sum().item()
        count += len(topic)
    model.train()
    return loss / count, right / count


def fit(model, train, val, cfg, out):
    """Train until `max_epochs`, or until validation has not improved for `patience` epochs; the best epoch."""
    opt = optimizer(model, cfg.optim)
    best, best_epoch, t = float("inf"), 0, cfg.trainer
    path = Path(out) / "best.pt"
    with open(Path(out) / "metrics.csv", "w", newline="") as f:
        table = csv.writer(f)
        table.writerow(["epoch", "train_loss", "train_acc", "val_loss", "val_acc", "data_s", "step_s"])
        for epoch in range(1, t.max_epochs + 1):
            loss_sum = right = count = 0
            waited = worked = 0.0
            tick = time.perf_counter()
            for ids, topic in train:
                waited += time.perf_counter() - tick
                tick = time.perf_counter()
                logits = model(ids)
                loss = F.cross_entropy(logits, topic)
                opt.zero_grad()
                loss.backward()
                if cfg.optim.clip:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.clip)
                opt.step()
                loss_sum += loss.item() * len(topic)
                right += (logits.argmax(-1) == topic).sum().item()
                count += len(topic)
                worked += time.perf_counter() - tick
                tick = time.perf_counter()
            val_loss, val_acc = validate(model, val)
            log.info("epoch %2d/%d  train %.4f acc %.3f  val %.4f acc %.3f  (data %.2f s, steps %.2f s)", epoch, t.max_epochs,
                     loss_sum / count, right / count, val_loss, val_acc, waited, worked)
            table.writerow([epoch, f"{loss_sum / count:.5f}", f"{right / count:.4f}", f"{val_loss:.5f}", f"{val_acc:.4f}",
                            f"{waited:.3f}", f"{worked:.3f}"])
            if val_loss < best:
                best, best_epoch = val_loss, epoch
                torch.save(model.state_dict(), path)
            elif epoch - best_epoch >= t.patience:
                log.info("no better validation loss since epoch %d, stopping", best_epoch)
                break
    model.load_state_dict(torch.load(path, weights_only=True))
    log.info("weights of epoch %d taken, val %.4f", best_epoch, best)
    return best_epoch
