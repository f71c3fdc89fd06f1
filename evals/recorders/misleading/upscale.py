"""Super-resolution of small pictures with Lightning."""

import argparse

import lightning as L
import torch
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Upscaler(L.LightningModule):
    def __init__(self, width, lr):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 256))

    def training_step(self, batch, _):
        loss = nn.functional.l1_loss(self.body(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def pictures(count):
    big = nn.functional.interpolate(torch.rand(count, 1, 4, 4), size=16, mode="bicubic")
    return TensorDataset(nn.functional.avg_pool2d(big, 2).flatten(1), big.flatten(1))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="upscale.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    L.seed_everything(cfg["seed"])
    trainer = L.Trainer(
        max_epochs=cfg["trainer"]["max_epochs"], accelerator="cpu", log_every_n_steps=10, profiler="simple",
        logger=TensorBoardLogger(".", "tb", version=0),
        callbacks=[ModelCheckpoint("weights", filename="{step}", **cfg["checkpoint"])],
    )
    trainer.fit(Upscaler(**cfg["model"]), DataLoader(
        pictures(cfg["pictures"]), cfg["batch_size"], shuffle=True, num_workers=cfg["workers"], persistent_workers=True))
