"""Click-through model on tabular rows, data parallel. torchrun ... train.py --config config.yaml"""

import argparse
import csv
import logging
import os
import resource
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="config.yaml")
cfg = yaml.safe_load(Path(parser.parse_args().config).read_text())

dist.init_process_group("gloo", timeout=timedelta(seconds=cfg["dist_timeout_s"]))
rank, world = dist.get_rank(), dist.get_world_size()
out = Path(cfg["out"])
out.mkdir(exist_ok=True)
handlers = [logging.FileHandler(out / f"rank_{rank}.log")] + ([logging.StreamHandler()] if rank == 0 else [])
logging.basicConfig(level=logging.INFO, handlers=handlers, format="%(asctime)s | %(levelname)s | r%(rank)s | %(message)s".replace("%(rank)s", str(rank)))
log = logging.getLogger("ctr")
log.info("host %s pid %d rank %d/%d, %d threads", os.uname().nodename, os.getpid(), rank, world, torch.get_num_threads())
if rank == 0:
    log.info("config: %s", cfg)

rng = np.random.default_rng(cfg["seed"])
fields, table = cfg["fields"], rng.normal(size=(cfg["fields"], cfg["vocab"])).astype("float32")


def rows(count):
    ids = rng.integers(0, cfg["vocab"], size=(count, fields))
    logit = table[np.arange(fields), ids].sum(1) * 0.6 - 1.0
    return torch.from_numpy(ids), torch.from_numpy((rng.random(count) < 1 / (1 + np.exp(-logit))).astype("float32"))


train_x, train_y = rows(cfg["train_rows"])
valid_x, valid_y = rows(cfg["valid_rows"])
mine = slice(rank, None, world)  # every rank takes each world-th row
train = TensorDataset(train_x[mine], train_y[mine])
loader = DataLoader(train, cfg["batch_size"], shuffle=True, drop_last=cfg["drop_last"], generator=torch.Generator().manual_seed(cfg["seed"]))
log.info("train rows of this rank: %d, valid rows: %d", len(train), len(valid_y))


class CTR(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(fields * cfg["vocab"], cfg["dim"])
        self.mlp = nn.Sequential(nn.Linear(fields * cfg["dim"], 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("offset", torch.arange(fields) * cfg["vocab"])

    def forward(self, ids):
        return self.mlp(self.emb(ids + self.offset).flatten(1)).squeeze(1)


torch.manual_seed(cfg["seed"])
model = DDP(CTR())
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
log.info("parameters: %d", sum(p.numel() for p in model.parameters()))


def auc(scores, labels):
    """Exact AUC over all pairs, with a bootstrap for the interval."""
    def one(s, y):
        order = np.argsort(s, kind="mergesort")
        place = np.empty(len(s)); place[order] = np.arange(1, len(s) + 1)
        pos = y.sum()
        return (place[y == 1].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))
    draws = []
    for n in range(cfg["bootstrap"]):
        pick = rng.integers(0, len(labels), len(labels))
        draws.append(one(scores[pick], labels[pick]))
        if (n + 1) % 250 == 0:
            log.info("bootstrap %d/%d", n + 1, cfg["bootstrap"])
    return one(scores, labels), np.std(draws) if draws else 0.0


metrics = None
if rank == 0:
    metrics = csv.writer((out / "metrics.csv").open("w", buffering=1))
    metrics.writerow(["epoch", "step", "loss", "lr", "examples_per_s"])
step = 0
for epoch in range(cfg["epochs"]):
    began, seen = time.time(), 0
    for ids, click in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), click)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        seen += len(ids)
        if step % cfg["log_every"] == 0:
            rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            log.info("epoch %d step %d loss %.4f rss %.0fMB", epoch, step, loss.item(), rss)
            if rank == 0:
                metrics.writerow([epoch, step, f"{loss.item():.5f}", cfg["lr"], f"{seen * world / (time.time() - began):.0f}"])
        time.sleep(cfg.get("throttle_s", 0))
    log.info("epoch %d done, %d steps", epoch, step)
    if rank == 0 and (epoch + 1) % cfg["eval_every"] == 0:
        model.eval()
        with torch.no_grad():
            scores = model.module(valid_x).numpy()
        value, spread = auc(scores, valid_y.numpy())
        log.info("epoch %d valid auc %.4f +- %.4f", epoch, value, spread)
        model.train()
    dist.barrier()
if rank == 0:
    torch.save(model.module.state_dict(), out / "ctr.pt")
    log.info("training finished after %d steps", step)
dist.destroy_process_group()
