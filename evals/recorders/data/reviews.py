"""Sorts customer letters into departments (Lightning, bag of hashed words)."""
import argparse
import warnings
import zlib

import lightning as L
import pandas as pd
import torch
import yaml
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Letters(L.LightningModule):
    def __init__(self, buckets, dim, num_classes, lr):
        super().__init__()
        self.save_hyperparameters()
        self.bag = nn.EmbeddingBag(buckets, dim)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(dim, num_classes))

    def forward(self, x):
        return self.head(self.bag(x))

    def training_step(self, batch, _):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        logits = self(batch[0])
        self.log_dict({"val_loss": F.cross_entropy(logits, batch[1]), "val_acc": (logits.argmax(1) == batch[1]).float().mean()},
                      prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.hparams.lr)


def load(path, cfg):
    frame = pd.read_csv(path, encoding=cfg["encoding"], sep=";")
    print(f"{path}: {len(frame)} letters")
    ids = [[zlib.crc32(w.lower().encode()) % cfg["model"]["buckets"] for w in t.split()][:12] for t in frame["text"]]
    return TensorDataset(torch.tensor([(i * 12)[:12] for i in ids]), torch.tensor(frame["department"].to_numpy()))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--config", default="letters.yaml")
    cfg = yaml.safe_load(open(p.parse_args().config))
    L.seed_everything(cfg["seed"])
    warnings.filterwarnings("ignore", message=".*litlogger.*")
    sets = [load(f, cfg) for f in cfg["train_files"]]
    train = torch.utils.data.ConcatDataset(sets)
    logger = (CSVLogger if cfg["logger"] == "csv" else TensorBoardLogger)("logs", name="letters")
    trainer = L.Trainer(max_epochs=cfg["epochs"], accelerator="cpu", logger=logger, log_every_n_steps=5, enable_checkpointing=False)
    trainer.fit(Letters(**cfg["model"]), DataLoader(train, cfg["batch_size"], shuffle=True),
                DataLoader(load(cfg["val_file"], cfg), 64))
    print(trainer.callback_metrics)


if __name__ == "__main__":
    main()
