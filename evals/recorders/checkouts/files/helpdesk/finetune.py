"""Train the desk classifier: python finetune.py CONFIG"""
import csv
import dataclasses
import json
import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import HfArgumentParser, get_linear_schedule_with_warmup

from deskcls import data
from deskcls import model as models
from deskcls.settings import Finetune
from deskcls.words import Words


def groups(model, cfg):
    """Decay for matrices, none for biases and norms; the classifier may have a rate of its own."""
    out = []
    for part, lr in ((model.encoder, cfg.lr), (model.classifier, cfg.head_lr or cfg.lr)):
        params = [p for p in part.parameters() if p.requires_grad]
        out.append({"params": [p for p in params if p.ndim > 1], "lr": lr, "weight_decay": cfg.weight_decay})
        out.append({"params": [p for p in params if p.ndim < 2], "lr": lr, "weight_decay": 0.0})
    return [g for g in out if g["params"]]


def main(path):
    cfg, = HfArgumentParser(Finetune).parse_yaml_file(path)
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=cfg.mixed_precision,
                              gradient_accumulation_steps=cfg.accumulate)
    set_seed(cfg.seed)
    out = Path("results") / cfg.name
    out.mkdir(parents=True, exist_ok=True)
    words = Words(cfg.words)
    train = data.loader(data.read(cfg.train_file), words, cfg.max_words, cfg.batch_size, True)
    dev = data.loader(data.read(cfg.dev_file), words, cfg.max_words, 128, False)
    model = models.build(cfg.encoder, words, len(data.DESKS))
    if cfg.head_epochs:
        model.freeze_encoder(True)
    optimizer = torch.optim.AdamW(groups(model, cfg))
    updates = cfg.epochs * (len(train) // cfg.accumulate)
    schedule = get_linear_schedule_with_warmup(optimizer, int(cfg.warmup * updates), updates)
    model, optimizer, train, dev, schedule = accelerator.prepare(model, optimizer, train, dev, schedule)
    bare = accelerator.unwrap_model(model)
    accelerator.print(f"{cfg.name}: encoder {cfg.encoder or 'from scratch'}, {len(train.dataset)} questions, {len(dev.dataset)} dev, {updates} updates")
    table = (out / "log.csv").open("w", newline="")
    rows = csv.writer(table)
    rows.writerow(["epoch", "lr", "trainable", "train_loss", "grad_norm", "dev_loss", "dev_acc", "seconds"])
    for epoch in range(cfg.epochs):
        began, losses, norms = time.time(), [], []
        if epoch == cfg.head_epochs and cfg.head_epochs:
            bare.freeze_encoder(False)
            accelerator.print(f"epoch {epoch}: the encoder joins in")
        for batch in train:
            with accelerator.accumulate(model):
                loss = model(**batch)[1]
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norms.append(float(accelerator.clip_grad_norm_(model.parameters(), cfg.clip)))
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.item())
        acc, dev_loss = models.accuracy(model, dev, accelerator)
        row = {"epoch": epoch, "lr": schedule.get_last_lr()[-1], "trainable": models.size(bare.trainable()),
               "train_loss": sum(losses) / len(losses), "grad_norm": sum(norms) / len(norms), "dev_loss": dev_loss,
               "dev_acc": acc, "seconds": time.time() - began}
        rows.writerow([round(v, 6) for v in row.values()])
        table.flush()
        accelerator.print("epoch {epoch:2d} | lr {lr:.2e} | trainable {trainable} | loss {train_loss:.4f} | gnorm {grad_norm:.3f} | "
                          "dev loss {dev_loss:.4f} acc {dev_acc:.4f} | {seconds:.1f} s".format(**row))
    accelerator.save_model(model, out)
    (out / "settings.json").write_text(json.dumps(dataclasses.asdict(cfg), indent=1))
    accelerator.print(f"finished, dev accuracy {acc:.4f}, {out}")


if __name__ == "__main__":
    main(sys.argv[1])
