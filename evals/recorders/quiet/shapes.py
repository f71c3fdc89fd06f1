"""Small images of shapes, data-parallel over Gloo."""

import argparse
import json
import logging
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

log = logging.getLogger("shapes")


def net(classes):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(64, classes),
    )


def records(path):
    with open(path) as f:
        for line in f:
            yield json.loads(line)


def batches(path, size):
    xs, ys = [], []
    while True:
        for r in records(path):
            x = torch.zeros(16, 16)
            left, top, width, height = r["box"]
            x[top : top + height, left : left + width] = r["shade"]
            xs.append(x[None] + 0.1 * torch.randn(1, 16, 16))
            ys.append(r["kind"])
            if len(ys) == size:
                yield torch.stack(xs), torch.tensor(ys)
                xs, ys = [], []


def validate(model, step):
    log.info("step %d validating", step)
    model.eval()
    right = total = 0
    with torch.no_grad():
        for _, (x, y) in zip(range(1500), batches("data/shard-0.jsonl", 32)):
            right += (model(x).argmax(1) == y).sum().item()
            total += len(y)
    model.train()
    log.info("step %d accuracy %.3f", step, right / total)


def leave(number, frame):
    log.warning("received signal %d, leaving", number)
    logging.shutdown()
    os._exit(128 + number)


def work(rank, world, args):
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s rank {rank}/{world} %(levelname)s %(message)s", force=True)
    signal.signal(signal.SIGTERM, leave)
    torch.manual_seed(1)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    log.info("joined, %d processes, shard %s", world, args.data.format(rank=rank))
    model = DistributedDataParallel(net(4))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    began = time.time()
    for step, (x, y) in zip(range(args.steps), batches(args.data.format(rank=rank), args.batch_size)):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 5 == 0:
            log.info("step %d loss %.4f %.1f images/s", step, loss.item(), (step + 1) * len(y) / (time.time() - began))
        if args.val_every and rank == 0 and (step + 1) % args.val_every == 0:
            validate(model.module, step)
    log.info("done")
    dist.destroy_process_group()


def own_log(rank, world, args):
    """A process of `--spawn N`, with a log file of its own."""
    with open(f"{args.logs}/rank_{rank}.log", "a", buffering=1) as f:
        os.dup2(f.fileno(), 1)
        os.dup2(f.fileno(), 2)
        work(rank, world, args)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--data", default="data/shard-{rank}.jsonl")
    ap.add_argument("--steps", type=int, default=80)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--val-every", type=int, default=0)
    ap.add_argument("--spawn", type=int, default=0)
    ap.add_argument("--logs", default="logs")
    args = ap.parse_args()
    if args.spawn:
        os.makedirs(args.logs, exist_ok=True)
        context = torch.multiprocessing.get_context("fork")
        group = [context.Process(target=own_log, args=(rank, args.spawn, args)) for rank in range(args.spawn)]
        for process in group:
            process.start()
        for process in group:
            process.join()
        sys.exit(max(abs(process.exitcode) for process in group))
    else:
        sys.exit(work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), args))
