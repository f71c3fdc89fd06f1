import lightning as L
import torch
from torch import nn

from . import nets
from .data import NAMES, Shift


class StampNet(L.LightningModule):
    def __init__(self, model, optim, loss, augment):
        super().__init__()
        self.save_hyperparameters()
        self.net = nets.NETS[model["name"]](model["width"], len(NAMES))
        self.criterion = nn.CrossEntropyLoss(label_smoothing=loss["smoothing"])
        self.shift = Shift(augment["shift"])

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        x, y = batch
        said = self(self.shift(x))
        loss = self.criterion(said, y)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        self.log("train_acc", (said.argmax(1) == y).float().mean(), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        said = self(x)
        self.log("val_loss", self.criterion(said, y))
        self.log("val_acc", (said.argmax(1) == y).float().mean())

    def on_train_epoch_end(self):
        m, lr = self.trainer.callback_metrics, self.optimizers().param_groups[0]["lr"]
        self.log("lr", lr)
        self.print(f"epoch {self.current_epoch:3d}: train loss {m['train_loss']:.4f} acc {m['train_acc']:.3f} | "
                   f"val loss {m['val_loss']:.4f} acc {m['val_acc']:.3f} | lr {lr:.2e}")

    def configure_optimizers(self):
        o = self.hparams.optim
        opt = torch.optim.AdamW(self.parameters(), lr=o["lr"], weight_decay=o["weight_decay"])
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, o["lr"], total_steps=self.trainer.estimated_stepping_batches)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}
