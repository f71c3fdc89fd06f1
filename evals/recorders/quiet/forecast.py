"""Forecasts of an hourly series with Lightning."""

import argparse
import math

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def series(days, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(days * 24, dtype=torch.float32)
    y = torch.sin(t * 2 * math.pi / 24) + 0.3 * torch.sin(t * 2 * math.pi / 168) + 0.1 * torch.randn(len(t), generator=g)
    x = torch.stack([y[i : i + 48] for i in range(len(y) - 54)])
    return TensorDataset(x, torch.stack([y[i + 48 : i + 54] for i in range(len(y) - 54)]))


class Forecaster(L.LightningModule):
    def __init__(self, hidden=32, lr=2e-3, horizon=6, quantiles=(0.1, 0.5, 0.9), from_epoch=3):
        super().__init__()
        self.save_hyperparameters()
        self.rnn, self.head = nn.GRU(1, hidden, batch_first=True), nn.Linear(hidden, horizon)

    def forward(self, x):
        return self.head(self.rnn(x[..., None])[0][:, -1])

    def training_step(self, batch, _):
        loss = nn.functional.mse_loss(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        out = self(batch[0])
        self.log("val_loss", nn.functional.mse_loss(out, batch[1]))
        if self.current_epoch >= self.hparams.from_epoch:
            self.log("val_cover", (out > batch[1].quantile(torch.tensor(self.hparams.quantiles), dim=0)).float().mean(0))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    args = ap.parse_args()
    L.seed_everything(4)
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="cpu", logger=CSVLogger(".", "csv", version=0),
                        log_every_n_steps=5, enable_progress_bar=False, enable_checkpointing=False)
    trainer.fit(Forecaster(), DataLoader(series(60, 1), 64, shuffle=True), DataLoader(series(10, 2), 64))
