"""Train a small network on a made-up table; --log says where the numbers go."""

import argparse
import csv
import json
import logging
import sys
import warnings

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--log", default="logging", help="logging, jsonl, csv, tqdm, tensorboard, wandb, mlflow")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--patience", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--task", default="classes", help="classes, values")
args = parser.parse_args()

logging.basicConfig(level=logging.INFO, format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", stream=sys.stderr)
logger = logging.getLogger("train")
torch.manual_seed(args.seed)
x = torch.randn(4096, 20)
raw = torch.tanh(x @ torch.randn(20, 16)) @ torch.randn(16, 5)
y = raw.argmax(1) if args.task == "classes" else raw[:, 0] + 0.5 * torch.randn(4096)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps + 1)
criterion = nn.CrossEntropyLoss() if args.task == "classes" else lambda p, t: nn.functional.mse_loss(p[:, 0], t)


class Sink:
    """Where the numbers of a step go."""

    def __init__(self, kind):
        self.kind = kind
        if kind == "jsonl":
            self.file = open("metrics.jsonl", "w")
        elif kind == "csv":
            self.file = open("metrics.csv", "w", newline="")
            self.rows = None
        elif kind == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter

            self.writer = SummaryWriter("runs/table")
        elif kind == "wandb":
            import wandb

            self.run = wandb.init(project="table", config=vars(args), mode="offline", settings=wandb.Settings(x_disable_stats=True, disable_git=True, disable_code=True, save_code=False))
        elif kind == "mlflow":
            import mlflow

            mlflow.set_tracking_uri("file:./mlruns")
            mlflow.set_experiment("table")
            mlflow.start_run(run_name="first")
            mlflow.log_params(vars(args))
            self.mlflow = mlflow
        elif kind == "tqdm":
            from tqdm import tqdm

            self.bar = tqdm(total=args.steps, desc="Training", mininterval=0.05)

    def write(self, step, row):
        kind = self.kind
        if kind == "logging":
            if step % 5 == 0:
                logger.info(" ".join([f"step={step}/{args.steps}", *(f"{k}={v:.5g}" for k, v in row.items())]))
        elif kind == "jsonl":
            print(json.dumps({"step": step, **row}), file=self.file, flush=True)
        elif kind == "csv":
            if self.rows is None:
                self.rows = csv.DictWriter(self.file, ["step", "loss", "lr", "grad_norm", "val_loss", "val_acc"])
                self.rows.writeheader()
            self.rows.writerow({"step": step, **row})
        elif kind == "tensorboard":
            for k, v in row.items():
                self.writer.add_scalar(f"train/{k}" if "val" not in k else f"val/{k[4:]}", v, step)
        elif kind == "wandb":
            self.run.log({(f"val/{k[4:]}" if "val" in k else f"train/{k}"): v for k, v in row.items()}, step=step)
        elif kind == "mlflow":
            self.mlflow.log_metrics(row, step=step)
        elif kind == "tqdm":
            self.bar.update()
            self.bar.set_postfix(loss=f"{row['loss']:.4f}", lr=f"{row['lr']:.1e}")

    def close(self):
        for name, end in (("file", "close"), ("writer", "close"), ("run", "finish"), ("mlflow", "end_run"), ("bar", "close")):
            if hasattr(self, name):
                getattr(getattr(self, name), end)()


sink, best, since = Sink(args.log), float("inf"), 0
logger.info("arguments: %s", vars(args))
logger.info("CUDA is not available, training on the CPU")
warnings.warn("the 'normalize' option is deprecated and will be removed in version 2.0", FutureWarning, stacklevel=1)
for step in range(1, args.steps + 1):
    rows = torch.randint(3500, (args.batch_size,))
    loss = criterion(model(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    row = {"loss": loss.item(), "lr": scheduler.get_last_lr()[0], "grad_norm": norm.item()}
    if step % 20 == 0:
        with torch.no_grad():
            out = model(x[3500:])
            row["val_loss"] = criterion(out, y[3500:]).item()
            row["val_acc"] = (out.argmax(1) == y[3500:]).float().mean().item() if args.task == "classes" else 0.0
        if args.task != "classes":
            del row["val_acc"]
        logger.info("validation after step %d: %s", step, ", ".join(f"{k} {v:.4f}" for k, v in row.items() if "val" in k))
        since = 0 if row["val_loss"] < best - 1e-3 else since + 1
        best = min(best, row["val_loss"])
    sink.write(step, row)
    if args.patience and since >= args.patience:
        logger.info("no improvement for %d validations, stopping early at step %d (best %.4f)", since, step, best)
        break
sink.close()
logger.info("done, best validation loss %.4f", best)
