"""DDP or FSDP over Gloo: resumes from its own checkpoint, saves on SIGTERM, may lose a connection once."""

import argparse
import logging
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="ddp")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--lr", type=float, default=2e-3)
parser.add_argument("--bf16", action="store_true")
parser.add_argument("--unused", action="store_true")
parser.add_argument("--save-every", type=int, default=0)
parser.add_argument("--lose", type=int, default=0)
parser.add_argument("--wait", type=float, default=0.0)
args = parser.parse_args()
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format=f"[%(asctime)s] [rank{rank}] [%(levelname)s] %(message)s")
log = logging.getLogger(__name__)
log.info("process group ready: backend gloo, rank %d of %d", rank, world)

torch.manual_seed(11)
truth = torch.randn(16, 4)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))
if args.strategy == "fsdp":
    from torch.distributed.fsdp import fully_shard

    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    wrapped = fully_shard(model)
else:
    wrapped = nn.parallel.DistributedDataParallel(model, find_unused_parameters=args.unused)
optimizer = torch.optim.AdamW(wrapped.parameters(), lr=args.lr)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.05, total_iters=20)
kept, first = Path("last.pt"), 1
if kept.exists():
    state = torch.load(kept)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    warmup.load_state_dict(state["scheduler"])
    first = state["step"] + 1
    log.info("resuming from last.pt at step %d", first)
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))


def save(step):
    if rank == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": warmup.state_dict(), "step": step}, "last.tmp")
        Path("last.tmp").rename(kept)
        log.info("saved last.pt at step %d", step)
    dist.barrier()


for step in range(first, args.steps + 1):
    began = time.time()
    gen = torch.Generator().manual_seed(step * world + rank)
    x = torch.randn(32, 16, generator=gen)
    y = (x @ truth).argmax(1)
    with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
        loss = nn.functional.cross_entropy(wrapped(x), y)
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(wrapped.parameters(), 1.0)
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    optimizer.step()
    warmup.step()
    time.sleep(args.wait)
    if step % 5 == 0:
        log.info("step: %d loss: %.4f grad_norm: %.3f lr: %.2e step_time: %.1fms", step, loss.item(), norm.item(), warmup.get_last_lr()[0], (time.time() - began) * 1000)
    if args.save_every and step % args.save_every == 0:
        save(step)
    if args.lose == step and first == 1 and rank == 1:
        raise ConnectionResetError(104, "Connection reset by peer")
    asked = torch.tensor(float(bool(stop)))
    dist.all_reduce(asked)
    if asked.item():
        log.info("SIGTERM received, saving and leaving so that the job can be requeued")
        save(step)
        break
else:
    log.info("training done after %d steps", args.steps)
dist.destroy_process_group()
