"""Classes of interleaved rings with Lightning; the learning rate restarts each few epochs."""

import argparse
import math

import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def rings(count, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 3, (count,), generator=g)
    angle = 2 * math.pi * torch.rand(count, generator=g)
    radius = 1 + kind + 0.25 * torch.randn(count, generator=g)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), kind)


class Rings(L.LightningModule):
    def __init__(self, hidden=48, lr=0.15, restart=5):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 3))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        out = self.net(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(out, batch[1]))
        self.log("val_accuracy", (out.argmax(-1) == batch[1]).float().mean())

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            got = self.trainer.callback_metrics
            best = getattr(self, "best", 0.0)
            note = f" (best {best:.3f}, WORSE)" if got["val_accuracy"] < best - 0.02 else ""
            print(f"epoch {self.current_epoch} val accuracy {got['val_accuracy']:.3f}{note} val loss {got['val_loss']:.4f}", flush=True)
            self.best = max(best, got["val_accuracy"].item())

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.hparams.lr, momentum=0.9)
        return [opt], [torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, self.hparams.restart, T_mult=2)]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=15)
    ap.add_argument("--lr", type=float, default=0.15)
    args = ap.parse_args()
    L.seed_everything(1)
    trainer = L.Trainer(max_epochs=args.epochs, accelerator="cpu", logger=CSVLogger(".", "csv", version=0), log_every_n_steps=5,
                        callbacks=[LearningRateMonitor()], enable_checkpointing=False, enable_progress_bar=False)
    trainer.fit(Rings(lr=args.lr), DataLoader(rings(1600, 1), 32, shuffle=True), DataLoader(rings(400, 2), 200))
