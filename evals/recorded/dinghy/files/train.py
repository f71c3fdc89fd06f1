"""A small vision transformer on drawn shapes, data parallel; scores on held-out pictures after each epoch."""

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import yaml
from scoring import evaluate
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torch.utils.tensorboard import SummaryWriter

cfg = yaml.safe_load(Path("vit.yaml").read_text())
dist.init_process_group("gloo", timeout=timedelta(seconds=cfg["timeout"]))
rank, world = dist.get_rank(), dist.get_world_size()
logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [%(levelname)s] [rank {rank}] %(name)s: %(message)s")
log = logging.getLogger("vit")
log.info("rank %d of %d on %s", rank, world, os.uname().nodename)


def pictures(count, seed):
    """Discs, squares, crosses and rings of 32x32 pixels in noise."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(4, (count,), generator=g)
    cx, cy, r = (torch.randint(lo, hi, (count, 1, 1), generator=g) for lo, hi in ((10, 22), (10, 22), (5, 9)))
    yy, xx = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    dx, dy = (xx - cx).abs(), (yy - cy).abs()
    far = (dx**2 + dy**2).float().sqrt()
    masks = torch.stack([far < r, (dx < r) & (dy < r), ((dx < 2) | (dy < 2)) & (far < r), (far < r) & (far > r - 3)])
    clean = masks[label, torch.arange(count)].float()
    return TensorDataset((clean + 0.4 * torch.randn(clean.shape, generator=g)).unsqueeze(1), label)


class ViT(nn.Module):
    def __init__(self, dim, depth, heads, patch):
        super().__init__()
        self.embed = nn.Conv2d(1, dim, patch, patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (32 // patch) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(dim, 4)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.body(torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos)[:, 0])


torch.manual_seed(cfg["seed"])
model = DistributedDataParallel(ViT(**cfg["model"]))
train, valid = pictures(cfg["train_images"], 1), pictures(cfg["valid_images"], 2)
sampler = DistributedSampler(train, shuffle=True, seed=cfg["seed"])
loader = DataLoader(train, cfg["batch_size"], sampler=sampler, drop_last=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=0.05)
writer = SummaryWriter("tb") if rank == 0 else None
log.info("%d training images, %d steps an epoch, %d images to score", len(train), len(loader), len(valid))

step = 0
for epoch in range(1, cfg["epochs"] + 1):
    sampler.set_epoch(epoch)
    began = time.time()
    for image, label in loader:
        loss = nn.functional.cross_entropy(model(image), label, label_smoothing=0.05)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % cfg["log_every"] == 0:
            log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
            if writer:
                writer.add_scalar("train/loss", loss.item(), step)
    log.info("epoch %d trained in %.1f s", epoch, time.time() - began)
    scores = evaluate(model.module, valid, cfg["eval_batch_size"])
    if scores:
        log.info("epoch %d valid %s", epoch, " ".join(f"{k}={v:.4f}" for k, v in scores.items()))
        if writer:
            for key, value in scores.items():
                writer.add_scalar(f"valid/{key}", value, epoch)
log.info("finished")
dist.destroy_process_group()
