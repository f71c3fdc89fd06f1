"""PyTorch Lightning: one module, several loggers and bars."""

import argparse
import warnings

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--logger", default="csv")
parser.add_argument("--bar", default="tqdm")
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--patience", type=int, default=0)
parser.add_argument("--devices", type=int, default=1)
parser.add_argument("--precision", default="32-true")
parser.add_argument("--resume", default=None)
args = parser.parse_args()
L.seed_everything(args_seed := 42, workers=True)
centres = torch.randn(6, 24)


def rows(count):
    y = torch.randint(6, (count,))
    return TensorDataset(centres[y] + 1.2 * torch.randn(count, 24), y)


class Net(L.LightningModule):
    def __init__(self, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Dropout(0.1), nn.Linear(48, 6))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, _):
        out = self.layers(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(out, batch[1]), prog_bar=True, sync_dist=args.devices > 1)
        self.log("val_acc", (out.argmax(1) == batch[1]).float().mean(), sync_dist=args.devices > 1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)}


callbacks = [LearningRateMonitor(), ModelCheckpoint(save_last=True)]
if args.bar == "rich":
    callbacks.append(RichProgressBar())
if args.patience:
    callbacks.append(EarlyStopping("val_loss", patience=args.patience, verbose=True, min_delta=0.01))
trainer = L.Trainer(
    accelerator="cpu", devices=args.devices, strategy="ddp" if args.devices > 1 else "auto", max_epochs=args.epochs,
    precision=args.precision, callbacks=callbacks, log_every_n_steps=5,
    logger=CSVLogger(".", "logs") if args.logger == "csv" else TensorBoardLogger(".", "logs"),
)
trainer.fit(Net(), DataLoader(rows(1600), 32, shuffle=True), DataLoader(rows(320), 32), ckpt_path=args.resume)
