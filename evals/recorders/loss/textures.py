"""Fine-tune a head on an encoder that was pretrained to rebuild patches (Lightning)."""
import argparse
import math

import lightning as L
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def patches(n, seed):
    g = torch.Generator().manual_seed(seed)
    kind = torch.randint(0, 8, (n,), generator=g)
    t = torch.linspace(0, 1, 16)
    yy, xx = torch.meshgrid(t, t, indexing="ij")
    angle = kind.float() * math.pi / 8
    wave = torch.cos(angle)[:, None, None] * xx + torch.sin(angle)[:, None, None] * yy
    phase = torch.rand(n, generator=g)[:, None, None] * 6.28
    return (torch.sin(22 * wave + phase) + 0.4 * torch.randn(n, 16, 16, generator=g)).unsqueeze(1), kind


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2), nn.GELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(512, 64))

    def forward(self, x):
        return self.net(x)


class Pretrain(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Encoder(), nn.Linear(64, 256)

    def training_step(self, batch, _):
        loss = nn.functional.mse_loss(self.decoder(self.encoder(batch[0])), batch[0].flatten(1))
        self.log("pretrain/loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


class Finetune(L.LightningModule):
    def __init__(self, encoder, lr):
        super().__init__()
        self.lr = lr
        self.encoder = encoder.requires_grad_(False)
        self.norm = nn.LayerNorm(64)
        self.head = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))

    def forward(self, x):
        return self.head(self.norm(self.encoder(x)))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train/loss", loss)
        self.log("train/lr", self.lr)
        return loss

    def validation_step(self, batch, _):
        out = self(batch[0])
        self.log("val/loss", nn.functional.cross_entropy(out, batch[1]))
        self.log("val/accuracy", (out.argmax(-1) == batch[1]).float().mean())

    def on_validation_epoch_end(self):
        m = self.trainer.callback_metrics
        print(f"epoch {self.current_epoch}: val/loss {m['val/loss']:.4f} val/accuracy {m['val/accuracy']:.4f}", flush=True)

    def configure_optimizers(self):
        decay = [p for p in self.encoder.parameters() if p.ndim > 1]
        plain = [p for p in self.encoder.parameters() if p.ndim == 1] + list(self.norm.parameters())
        return torch.optim.AdamW([{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=self.lr)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--epochs", type=int, default=10)
    a = ap.parse_args()
    L.seed_everything(3)
    train, held = TensorDataset(*patches(1600, 1)), TensorDataset(*patches(400, 2))
    loader = DataLoader(train, 32, shuffle=True)
    first = Pretrain()
    L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False).fit(first, loader)
    trainer = L.Trainer(max_epochs=a.epochs, accelerator="cpu", logger=TensorBoardLogger(".", name="tb", version="finetune"), log_every_n_steps=5,
                        enable_checkpointing=False, enable_progress_bar=False, num_sanity_val_steps=0)
    trainer.fit(Finetune(first.encoder, a.lr), loader, DataLoader(held, 200))


if __name__ == "__main__":
    main()
