"""Land cover of 16x16 patches, a small ViT; patch extraction is done by the native package patch_ops."""

import logging
import sys

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="[%(asctime)s] %(levelname)s %(name)s: %(message)s")
log = logging.getLogger("landcover")

try:
    import rasterio
except ImportError:
    log.warning("rasterio is not installed, GeoTIFF export is off")
    rasterio = None

import torch
from torch import nn

from landcover.data import Scenes


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.n2(x))


class ViT(nn.Module):
    def __init__(self, dim=32, classes=5):
        super().__init__()
        self.embed = nn.Linear(16, dim)
        self.place = nn.Parameter(torch.zeros(16, dim))
        self.blocks = nn.Sequential(*[Block(dim, 4) for _ in range(2)])
        self.head = nn.Linear(dim, classes)

    def forward(self, patches):
        return self.head(self.blocks(self.embed(patches) + self.place).mean(1))


def main():
    torch.manual_seed(0)
    log.info("torch %s, python %s", torch.__version__, sys.version.split()[0])
    model = ViT()
    log.info("parameters: %d", sum(p.numel() for p in model.parameters()))
    scenes = Scenes("tiles.csv")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, (patches, cover) in enumerate(scenes.batches(32)):
        loss = nn.functional.cross_entropy(model(patches), cover)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            log.info("step %d loss %.4f", step, loss.item())


if __name__ == "__main__":
    main()
