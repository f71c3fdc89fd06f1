"""Land cover segmentation of multispectral tiles with a small U-Net."""

import argparse
import logging
import time

import numpy as np
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="%(asctime)s %(name)s %(levelname)s %(message)s", level=logging.INFO)
log = logging.getLogger("landcover")


class Tiles(Dataset):
    def __init__(self, cfg):
        self.size, self.bands = cfg["tile_size"], cfg["bands"]
        self.raw = np.memmap(cfg["tiles"], dtype=np.uint8, mode="r").reshape(-1, self.bands, self.size, self.size)
        self.masks = np.load(cfg["masks"])
        self.keep = cfg["cache"] == "ram"
        self.warp = cfg["augment"].get("warp", 0)
        self.seen = {}
        self.rng = np.random.default_rng(cfg["seed"])

    def __len__(self):
        return len(self.masks)

    def decode(self, i):
        x = self.raw[i].astype(np.float32) / 255.0
        return (x - x.mean((1, 2), keepdims=True)) / (x.std((1, 2), keepdims=True) + 1e-5)

    def distort(self, x, y):
        """Smooth random displacement field, bilinear, one pass for each octave."""
        for octave in range(self.warp):
            n = self.size
            field = self.rng.normal(size=(2, n, n))
            for _ in range(6 * (octave + 1)):
                field = (np.roll(field, 1, 1) + np.roll(field, -1, 1) + np.roll(field, 1, 2) + np.roll(field, -1, 2)) / 4
            rows, cols = np.mgrid[0:n, 0:n] + 40 * field
            r, c = np.clip(rows, 0, n - 2), np.clip(cols, 0, n - 2)
            r0, c0 = r.astype(int), c.astype(int)
            a, b = r - r0, c - c0
            x = (x[:, r0, c0] * (1 - a) * (1 - b) + x[:, r0 + 1, c0] * a * (1 - b)
                 + x[:, r0, c0 + 1] * (1 - a) * b + x[:, r0 + 1, c0 + 1] * a * b)
            y = y[r0, c0]
        return x.astype(np.float32), y

    def __getitem__(self, i):
        x = self.seen.get(i)
        if x is None:
            x = self.decode(i)
            if self.keep:
                self.seen[i] = x
        y = self.masks[i]
        if self.warp:
            x, y = self.distort(x, y)
        return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


class UNet(nn.Module):
    def __init__(self, bands, classes, width=12):
        super().__init__()
        block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
        self.a, self.b = block(bands, width), block(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.out = nn.Sequential(block(2 * width, width), nn.Conv2d(width, classes, 1))

    def forward(self, x):
        a = self.a(x)
        b = self.b(nn.functional.max_pool2d(a, 2))
        return self.out(torch.cat([a, self.up(b)], 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="tiles.yaml")
    cfg = yaml.safe_load(open(parser.parse_args().config))
    torch.manual_seed(cfg["seed"])
    data = Tiles(cfg)
    loader = DataLoader(data, cfg["batch_size"], shuffle=True, num_workers=cfg["workers"], drop_last=True)
    model = UNet(cfg["bands"], cfg["classes"])
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=1e-4)
    log.info("torch %s, %d threads, %d tiles of %d x %d x %d, %d workers", torch.__version__, torch.get_num_threads(),
             len(data), data.bands, data.size, data.size, cfg["workers"])
    log.info("%.2f M parameters", sum(p.numel() for p in model.parameters()) / 1e6)
    step, waited, busy, began = 0, 0.0, 0.0, time.perf_counter()
    for epoch in range(cfg["epochs"]):
        for x, y in loader:
            got = time.perf_counter()
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            done = time.perf_counter()
            waited, busy, began = waited + got - began, busy + done - got, done
            if step % cfg["log_every"] == 0:
                n = cfg["log_every"]
                log.info("epoch %d step %4d | loss %.4f | batch in %.3f s | step in %.3f s | %.0f tiles/s", epoch, step,
                         loss.item(), waited / n, busy / n, n * len(x) / (waited + busy))
                waited = busy = 0.0
            if step >= cfg["max_steps"]:
                log.info("finished after %d steps", step)
                return


if __name__ == "__main__":
    main()
