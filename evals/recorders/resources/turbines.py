"""Vibration forecast for wind turbines (Lightning, TCN)."""

import argparse

import lightning as L
import psutil
import torch
import yaml
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Forecast(L.LightningModule):
    def __init__(self, width, layers, lr):
        super().__init__()
        self.save_hyperparameters()
        self.inp = nn.Conv1d(4, width, 1)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=2**i, dilation=2**i) for i in range(layers))
        self.out = nn.Conv1d(width, 4, 1)
        self.outputs = []

    def forward(self, x):
        h = self.inp(x)
        for conv in self.convs:
            h = h + torch.nn.functional.gelu(conv(h))
        return self.out(h)

    def training_step(self, batch, _):
        x, y = batch
        forecast = self(x)
        loss = nn.functional.smooth_l1_loss(forecast, y)
        self.outputs.append({"loss": loss, "forecast": forecast, "target": y})
        self.log("train/loss", loss)
        return loss

    def on_train_epoch_end(self):
        error = torch.cat([(o["forecast"] - o["target"]).abs().mean((0, 2), keepdim=True)[..., 0] for o in self.outputs])
        for channel, value in enumerate(error.mean(0)):
            self.log(f"train/mae_{channel}", value)
        self.outputs.clear()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)}


class HostStats(Callback):
    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step % 5 == 0:
            module.log("host/rss_mib", psutil.Process().memory_info().rss / 2**20)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="turbines.yaml")
    cfg = yaml.safe_load(open(parser.parse_args().config))
    L.seed_everything(cfg["seed"])
    t = torch.arange(cfg["windows"] * 2 + 513).float()
    wave = torch.stack([torch.sin(t / p) + 0.1 * torch.randn_like(t) for p in (7, 19, 53, 131)])
    x = wave.unfold(1, 512, 2)[:, : cfg["windows"]].permute(1, 0, 2)
    y = wave[:, 1:].unfold(1, 512, 2)[:, : cfg["windows"]].permute(1, 0, 2)
    loader = DataLoader(TensorDataset(x, y), cfg["batch_size"], shuffle=True)
    trainer = L.Trainer(max_epochs=cfg["epochs"], logger=CSVLogger("logs", flush_logs_every_n_steps=5), log_every_n_steps=5,
                        callbacks=[HostStats()], accelerator="cpu", enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Forecast(cfg["width"], cfg["layers"], cfg["lr"]), loader)


if __name__ == "__main__":
    main()
