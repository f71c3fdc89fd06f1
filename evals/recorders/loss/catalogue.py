"""Products into categories: a post-norm transformer over title words (Lightning)."""
import argparse
import random

import lightning as L
import torch
import yaml
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

KINDS = 12


def titles(n, seed):
    rng, key = random.Random(seed), random.Random(77)
    pairs = {(key.randrange(4, 120), key.randrange(4, 120)): k % KINDS for k in range(72)}
    rows, kinds = [], []
    for _ in range(n):
        pair = rng.choice(list(pairs))
        row = [rng.randrange(120, 400) for _ in range(16)]
        for word in pair:
            row[rng.randrange(16)] = word
        rows.append(row)
        kinds.append(pairs[pair])
    return TensorDataset(torch.tensor(rows), torch.tensor(kinds))


class Classifier(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        m = cfg["model"]
        self.embed = nn.Embedding(400, m["width"])
        self.place = nn.Parameter(torch.randn(16, m["width"]) * 0.02)
        layer = nn.TransformerEncoderLayer(m["width"], m["heads"], 2 * m["width"], m["dropout"], batch_first=True, norm_first=m["norm_first"])
        self.encoder = nn.TransformerEncoder(layer, m["layers"])
        self.head = nn.Linear(m["width"], KINDS)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x) + self.place).mean(1))

    def training_step(self, batch, _):
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        self.log("lr", self.optimizers().param_groups[0]["lr"])
        return loss

    def on_before_optimizer_step(self, optimizer):
        self.log("grad_norm", nn.utils.get_total_norm([p.grad for p in self.parameters() if p.grad is not None]))

    def validation_step(self, batch, _):
        out = self(batch[0])
        self.log("val_loss", nn.functional.cross_entropy(out, batch[1]))
        self.log("val_acc", (out.argmax(-1) == batch[1]).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        o = self.cfg["optim"]
        opt = torch.optim.AdamW(self.parameters(), lr=o["lr"], betas=(0.9, o["beta2"]), weight_decay=o["weight_decay"])
        warm = max(o["warmup_steps"], 1)
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warm) * min(1.0, (warm / (s + 1)) ** 0.5 if s > warm > 1 else 1.0))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--config", default="catalogue.yaml")
    cfg = yaml.safe_load(open(ap.parse_args().config))
    L.seed_everything(cfg["seed"])
    train = DataLoader(titles(cfg["rows"], 1), cfg["batch_size"], shuffle=True)
    held = DataLoader(titles(600, 2), 200)
    trainer = L.Trainer(max_steps=cfg["max_steps"], accelerator="cpu", logger=CSVLogger("logs", name="catalogue", version=0), log_every_n_steps=4,
                        val_check_interval=cfg["val_every"], check_val_every_n_epoch=None, enable_checkpointing=False, enable_progress_bar=False,
                        gradient_clip_val=cfg["gradient_clip_val"])
    trainer.fit(Classifier(cfg), train, held)
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})


if __name__ == "__main__":
    main()
