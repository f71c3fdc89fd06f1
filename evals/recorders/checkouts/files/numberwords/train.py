"""python train.py CONFIG [--resume] [--slice UPDATES]"""
import argparse
import contextlib
import json
import logging
import math
import sys
from pathlib import Path

import torch

from numwords import pairs, state
from numwords.average import Average
from numwords.model import Seq2Seq

log = logging.getLogger("train")
DEFAULTS = {"name": "", "train": "data/train.tsv", "val": "data/val.tsv", "width": 64, "dropout": 0.1, "batch": 32, "lr": 4e-3,
            "updates": 1800, "warmup": 100, "clip": 1.0, "average": 0.0, "eval_every": 100, "log_every": 20, "save_every": 600, "seed": 1}


def evaluate(model, val):
    model.eval()
    total = right = 0
    with torch.no_grad():
        for i in range(0, len(val), 128):
            part = val[i:i + 128]
            x, y = pairs.encode(part)
            total += model(x, y).item() * len(part)
            right += sum(a == b for a, (_, b) in zip(model.greedy(x), part))
    model.train()
    return total / len(val), right / len(val)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("config", type=Path)
    ap.add_argument("--resume", action="store_true", help="go on from state.pt, if there is one")
    ap.add_argument("--slice", type=int, default=0, help="end after so many updates, with 75")
    args = ap.parse_args()
    cfg = {**DEFAULTS, "name": args.config.stem, **json.loads(args.config.read_text())}
    if extra := set(cfg) - set(DEFAULTS):
        sys.exit(f"{args.config}: unknown {sorted(extra)}")
    out = Path("runs") / cfg["name"]
    out.mkdir(parents=True, exist_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stdout)
    torch.manual_seed(cfg["seed"])
    train, val = pairs.read(cfg["train"]), pairs.read(cfg["val"])
    stream = pairs.Stream(train, cfg["batch"], cfg["seed"])
    model = Seq2Seq(cfg["width"], cfg["dropout"])
    average = Average(model, cfg["average"]) if cfg["average"] else None
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1, (s + 1) / cfg["warmup"]) * (0.05 + 0.95 * (1 + math.cos(math.pi * min(1, s / cfg["updates"]))) / 2))
    begin = 0
    log.info("%s: %d pairs, %d to validate, %d weights", cfg["name"], len(train), len(val), sum(p.numel() for p in model.parameters()))
    if args.resume and (out / "state.pt").exists():
        begin = state.load(str(out / "state.pt"), model, optimizer, schedule, stream)
        log.info("going on from %s, update %d", out / "state.pt", begin)
    metrics = (out / "metrics.jsonl").open("a" if begin else "w")
    loss_sum = 0.0
    for step in range(begin + 1, cfg["updates"] + 1):
        x, y = stream.next()
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), cfg["clip"])
        optimizer.step()
        schedule.step()
        if average:
            average.update(model)
        loss_sum += loss.item()
        if step % cfg["log_every"] == 0:
            row = {"step": step, "train_loss": round(loss_sum / cfg["log_every"], 5), "lr": schedule.get_last_lr()[0], "grad_norm": round(norm.item(), 4)}
            metrics.write(json.dumps(row) + "\n")
            loss_sum = 0.0
        if step % cfg["eval_every"] == 0:
            with average.put_into(model) if average else contextlib.nullcontext():
                val_loss, exact = evaluate(model, val)
            metrics.write(json.dumps({"step": step, "val_loss": round(val_loss, 5), "val_exact": round(exact, 4)}) + "\n")
            metrics.flush()
            log.info("update %d train %.4f val %.4f exact %.3f lr %.2e", step, row["train_loss"], val_loss, exact, schedule.get_last_lr()[0])
        if step % cfg["save_every"] == 0:
            state.save(str(out / "state.pt"), step, model, optimizer, schedule, stream)
        if args.slice and step - begin == args.slice and step < cfg["updates"]:
            log.info("slice of %d updates is over at %d", args.slice, step)
            sys.exit(75)
    torch.save({"cfg": cfg, "model": average.mean if average else model.state_dict()}, out / "export.pt")
    (out / "config.json").write_text(json.dumps(cfg, indent=1))
    log.info("done, %d updates, %s", cfg["updates"], out / "export.pt")


if __name__ == "__main__":
    main()
