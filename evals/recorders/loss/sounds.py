"""Keyword spotting on short feature sequences with a GRU (Lightning)."""
import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WORDS = "yes no up down left right on off".split()


def clips(n, seed):
    g = torch.Generator().manual_seed(seed)
    shape = torch.randn(len(WORDS), 20, 12, generator=torch.Generator().manual_seed(8))
    y = torch.randint(0, len(WORDS), (n,), generator=g)
    return TensorDataset(shape[y] + 0.9 * torch.randn(n, 20, 12, generator=g), y)


class Spotter(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(12, 48, batch_first=True)
        self.out = nn.Linear(48, len(WORDS))
        self.hits = torch.zeros(len(WORDS))
        self.table = torch.zeros(len(WORDS), len(WORDS), dtype=torch.long)

    def forward(self, x):
        return self.out(self.gru(x)[1][0])

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def on_validation_epoch_start(self):
        self.hits.zero_()
        self.table.zero_()

    def validation_step(self, batch, _):
        x, y = batch
        out = self(x)
        self.log("val_loss", nn.functional.cross_entropy(out, y))
        guess = out.argmax(-1)
        self.hits += torch.bincount(y[guess == y], minlength=len(WORDS))
        self.table.index_put_((y, guess), torch.ones_like(y), accumulate=True)

    def on_validation_epoch_end(self):
        total = len(self.trainer.train_dataloader.dataset) if self.trainer.train_dataloader else 1
        self.log("val_accuracy", self.hits.sum() / total)
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch:2d}  val_loss {m['val_loss']:.4f}  val_accuracy {float(self.hits.sum() / total):.4f}", flush=True)

    def on_fit_end(self):
        print("confusion (rows: spoken, columns: heard)")
        print("       " + " ".join(f"{w:>5}" for w in WORDS))
        for w, row in zip(WORDS, self.table.tolist(), strict=True):
            print(f"{w:>6} " + " ".join(f"{v:5d}" for v in row))

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=2e-3)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)}


if __name__ == "__main__":
    L.seed_everything(21)
    trainer = L.Trainer(max_epochs=10, accelerator="cpu", logger=CSVLogger(".", name="metrics", version=0), log_every_n_steps=5,
                        enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0, gradient_clip_val=1.0)
    trainer.fit(Spotter(), DataLoader(clips(2000, 1), 32, shuffle=True), DataLoader(clips(500, 2), 100))
