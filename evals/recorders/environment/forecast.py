"""Demand of the next week from the last eight, one linear trunk for all depots (Lightning)."""

import argparse
import logging

import lightning as L
import numpy as np
import pandas as pd
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
log = logging.getLogger("depots")


class Trunk(L.LightningModule):
    def __init__(self, lags=8, hidden=48, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(lags, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, 1))

    def _loss(self, batch):
        x, y = batch
        return nn.functional.huber_loss(self.net(x)[:, 0], y)

    def training_step(self, batch, _):
        loss = self._loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        self.log("val_loss", self._loss(batch), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def windows(frame, lags):
    out = []
    for _, g in frame.groupby("depot"):
        v = np.log1p(g["pallets"].to_numpy(dtype=np.float32))
        out += [v[i:i + lags + 1] for i in range(len(v) - lags)]
    rows = torch.tensor(np.stack(out))
    return rows[:, :-1], rows[:, -1]


def report(model, frame, book):
    """Writes one sheet for the planners: a row for each depot."""
    rows = []
    with torch.no_grad():
        for depot, g in frame.groupby("depot"):
            v = torch.tensor(np.log1p(g["pallets"].to_numpy(dtype=np.float32))[-8:])
            rows.append({"depot": depot, "next_week": float(model.net(v[None])[0, 0].expm1())})
    table = pd.DataFrame(rows)
    log.info("forecast of %d depots, %.0f pallets in all", len(table), table["next_week"].sum())
    table.to_excel(book, sheet_name="next week", index=False)
    log.info("written: %s", book)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--csv", default="depots.csv")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--book", default="plan.xlsx")
    args = parser.parse_args()
    L.seed_everything(11)
    frame = pd.read_csv(args.csv)
    log.info("%d rows, %d depots", len(frame), frame["depot"].nunique())
    x, y = windows(frame, 8)
    cut = int(0.9 * len(x))
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="cpu", logger=CSVLogger("logs", name="", version="a"), log_every_n_steps=10,
                        enable_progress_bar=False, enable_checkpointing=True, default_root_dir="ckpt")
    model = Trunk()
    trainer.fit(model, DataLoader(TensorDataset(x[:cut], y[:cut]), 64, shuffle=True), DataLoader(TensorDataset(x[cut:], y[cut:]), 128))
    model.eval()
    report(model, frame, args.book)


if __name__ == "__main__":
    main()
