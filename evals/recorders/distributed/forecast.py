"""Load forecast with a GRU, PyTorch Lightning; everything comes from trainer.yaml."""

from datetime import timedelta
from pathlib import Path

import lightning as L
import torch
import yaml
from lightning.pytorch.callbacks import LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

cfg = yaml.safe_load(Path("trainer.yaml").read_text())
L.seed_everything(cfg["seed_everything"], workers=True)


def windows(count):
    start = torch.rand(count, 1) * 100
    t = start + torch.arange(49) / 4
    series = torch.sin(t) + 0.5 * torch.sin(t * 3.7) + 0.1 * torch.randn(t.shape)
    return TensorDataset(series[:, :48, None], series[:, 48])


class Forecast(L.LightningModule):
    def __init__(self, hidden, lr):
        super().__init__()
        self.save_hyperparameters()
        self.rnn = nn.GRU(1, hidden, batch_first=True)
        self.mean = nn.Linear(hidden, 1)
        self.spread = nn.Linear(hidden, 1)

    def forward(self, x):
        return self.mean(self.rnn(x)[0][:, -1]).squeeze(1)

    def training_step(self, batch, _):
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", nn.functional.mse_loss(self(batch[0]), batch[1]), prog_bar=True, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


options = dict(cfg["trainer"])
strategy = DDPStrategy(process_group_backend="gloo", timeout=timedelta(seconds=cfg["ddp"].pop("timeout")), **cfg["ddp"])
trainer = L.Trainer(
    **options, strategy=strategy, logger=CSVLogger(".", "csv"),
    callbacks=[LearningRateMonitor(), ModelCheckpoint(monitor="val_loss", save_top_k=1)],
)
loaders = cfg["data"]
trainer.fit(
    Forecast(**cfg["model"]),
    DataLoader(windows(loaders["train"]), loaders["batch_size"], shuffle=True, num_workers=0),
    DataLoader(windows(loaders["valid"]), loaders["batch_size"], num_workers=0),
)
