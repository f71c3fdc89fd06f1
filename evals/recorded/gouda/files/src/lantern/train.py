"""Train a model: python -m lantern.train CONFIG [--set section.key=value ...] [--resume FILE]"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import sys
import time
from pathlib import Path

import torch

from . import checkpoint, config, data, optim
from .model import LetterModel

log = logging.getLogger("lantern")


def parse(argv):
    ap = argparse.ArgumentParser(prog="lantern.train", description=__doc__)
    ap.add_argument("config", help="name of a file in configs/, without .yaml")
    ap.add_argument("--set", nargs="*", default=[], metavar="SECTION.KEY=VALUE", dest="overrides")
    ap.add_argument("--resume", default="", help="last.ckpt of an interrupted run")
    return ap.parse_args(argv)


@torch.no_grad()
def evaluate(model, row, cfg) -> float:
    model.eval()
    g = torch.Generator().manual_seed(0)
    losses = [model(*data.batch(row, cfg.data.batch_size, cfg.model.context, g))[1] for _ in range(cfg.run.eval_batches)]
    model.train()
    return torch.stack(losses).mean().item()


def main(argv=None):
    args = parse(argv)
    cfg = config.load(args.config, args.overrides)
    out = Path(cfg.run.out)
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s", datefmt="%H:%M:%S",
                        handlers=[logging.StreamHandler(sys.stdout), logging.FileHandler(out / "train.log")])
    torch.manual_seed(cfg.run.seed)
    alphabet = data.Alphabet()
    train_row, val_row = data.read(cfg.data.folder, cfg.data.val_every, alphabet)
    model = LetterModel(cfg.model, len(alphabet))
    log.info("config %s %s", args.config, " ".join(args.overrides))
    log.info("data %s: %d characters to train on, %d held out, alphabet of %d", cfg.data.folder, len(train_row), len(val_row), len(alphabet))
    log.info("model: dim %d, %d layers, dropout %g, %d parameters", cfg.model.dim, cfg.model.layers, cfg.model.dropout,
             sum(p.numel() for p in model.parameters()))
    if cfg.run.init_from:
        log.info("weights from %s (step %d)", cfg.run.init_from, checkpoint.init_from(cfg.run.init_from, model))
    optimizer = optim.build(model, cfg.optim)
    if cfg.run.compile:
        model = torch.compile(model, backend=cfg.run.compile_backend)
    start = checkpoint.resume(args.resume, model, optimizer) if args.resume else 0
    metrics = (out / "metrics.jsonl").open("a" if args.resume else "w")
    g = torch.Generator().manual_seed(cfg.run.seed + start)
    began, seen = time.time(), 0
    for step in range(start, cfg.run.steps + 1):
        if step % cfg.run.eval_every == 0:
            val = evaluate(model, val_row, cfg)
            log.info("step %d | val %.4f", step, val)
            metrics.write(json.dumps({"step": step, "val_loss": round(val, 5)}) + "\n")
        if step == cfg.run.steps:
            break
        lr = optim.rate(cfg.optim, step, cfg.run.steps)
        for group in optimizer.param_groups:
            group["lr"] = lr
        total = 0.0
        for _ in range(cfg.optim.grad_accum):
            x, y = data.batch(train_row, cfg.data.batch_size, cfg.model.context, g)
            _, loss = model(x, y)
            (loss / cfg.optim.grad_accum).backward()
            total += loss.item() / cfg.optim.grad_accum
            seen += x.numel()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.optim.clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % cfg.run.log_every == 0:
            log.info("step %d | train %.4f | lr %.2e | norm %.2f | %.1fk char/s", step, total, lr, norm, seen / (time.time() - began) / 1e3)
            metrics.write(json.dumps({"step": step, "train_loss": round(total, 5), "lr": lr, "grad_norm": round(norm.item(), 4)}) + "\n")
        if step and step % cfg.run.save_every == 0:
            checkpoint.save(out, model, optimizer, step, cfg)
    checkpoint.save(out, model, optimizer, cfg.run.steps, cfg)
    (out / "config.json").write_text(json.dumps(dataclasses.asdict(cfg), indent=1))
    prompt = alphabet.encode("Dear ")[None]
    model.eval()
    log.info("sample: %r", alphabet.decode(getattr(model, "_orig_mod", model).generate(prompt, 160, 0.7)[0].tolist()))
    log.info("done after %d steps, %s", cfg.run.steps, out / "model.pt")


if __name__ == "__main__":
    main()
