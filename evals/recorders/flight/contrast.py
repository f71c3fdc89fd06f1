"""Two towers trained against each other on pairs; features are gathered over all ranks, gradients summed by hand."""

import argparse
import faulthandler
import logging
import math
import os
import signal
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _dump_fr_trace

parser = argparse.ArgumentParser()
parser.add_argument("--shards", default="shards")
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--temperature", type=float, default=0.1)
parser.add_argument("--recall-every", type=int, default=40)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--stalled-after", type=float, default=12.0, help="seconds without a step until everything is written down")
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

dist.init_process_group("gloo", timeout=timedelta(minutes=30))
rank, world = dist.get_rank(), dist.get_world_size()
recall_group = dist.new_group(list(range(world)), group_desc="recall")
Path("logs").mkdir(exist_ok=True)
Path("flight").mkdir(exist_ok=True)
logging.basicConfig(filename=f"logs/rank{rank}.log", level=logging.INFO, format="%(asctime)s.%(msecs)03d %(levelname)s %(message)s", datefmt="%F %T")
log = logging.getLogger("contrast")
log.info("pid %d rank %d of %d, %s", os.getpid(), rank, world, vars(args))
beat = time.monotonic()


def write_down(*_):
    """What the flight recorder of this rank holds, and where each of its threads is."""
    Path(f"flight/nccl_trace_rank_{rank}").write_bytes(_dump_fr_trace())
    with open(f"logs/stack{rank}.txt", "w") as out:
        faulthandler.dump_traceback(out)


def watch():
    while time.monotonic() - beat < args.stalled_after:
        time.sleep(0.5)
    log.error("no step for %.0f s, writing flight recorder and stacks, then leaving", args.stalled_after)
    write_down()
    time.sleep(4)  # for the others
    os._exit(1)


signal.signal(signal.SIGUSR2, write_down)
threading.Thread(target=watch, daemon=True, name="watch").start()


def pairs():
    """Rows of this rank's shards, again and again: 12 numbers and 16 tokens each."""
    while True:
        for file in sorted(Path(args.shards).glob("*.pt"))[rank::world]:
            log.info("shard %s", file.name)
            with open(file, "rb") as source:
                left, right = torch.load(source, weights_only=True)
            for i in range(0, len(left) - args.batch + 1, args.batch):
                yield left[i : i + args.batch], right[i : i + args.batch]


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(12, 64), nn.GELU(), nn.Linear(64, 32))
        self.words, self.right = nn.Embedding(200, 32), nn.Linear(32, 32)

    def forward(self, left, right):
        norm = nn.functional.normalize
        return norm(self.left(left), dim=-1), norm(self.right(self.words(right).mean(1)), dim=-1)


def gathered(part):
    """Features of all ranks; only those of this rank carry a gradient."""
    parts = [torch.empty_like(part) for _ in range(world)]
    dist.all_gather(parts, part.detach().contiguous())
    parts[rank] = part
    return torch.cat(parts)


def sum_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    at = 0
    for p in model.parameters():
        p.grad.copy_((flat[at : at + p.numel()] / world).view_as(p))
        at += p.numel()


torch.manual_seed(args.seed)
model = Towers()
optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
batches, mean = pairs(), math.log(args.batch * world)
for step in range(1, args.steps + 1):
    left, right = next(batches)
    a, b = model(left, right)
    scores = a @ gathered(b).T / args.temperature
    target = torch.arange(len(left)) + rank * len(left)
    loss = nn.functional.cross_entropy(scores, target)
    if loss.item() > 1.6 * mean:
        log.warning("step %d: loss %.3f is far above the mean %.3f, batch left out", step, loss.item(), mean)
        continue
    mean = 0.95 * mean + 0.05 * loss.item()
    optimizer.zero_grad()
    loss.backward()
    sum_gradients(model)
    optimizer.step()
    beat = time.monotonic()
    if step % 10 == 0:
        log.info("step %d loss %.4f mean %.4f", step, loss.item(), mean)
    if step % args.recall_every == 0:
        hit = (scores.argmax(1) == target).float().mean()
        dist.all_reduce(hit, group=recall_group)
        log.info("step %d recall@1 %.3f", step, hit.item() / world)
    time.sleep(args.pause)
log.info("finished %d steps", args.steps)
dist.barrier()
dist.destroy_process_group()
