"""A stack of layers cut into stages, one a rank; micro-batches go from stage to stage and their gradients back."""

import datetime
import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import _dump_fr_trace

plan = json.loads(Path(sys.argv[1]).read_text())
dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=20))
rank, world = dist.get_rank(), dist.get_world_size()
Path("flight").mkdir(exist_ok=True)
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format=f"%(asctime)s stage{rank} %(message)s")
log = logging.getLogger("stages")
batch, width = plan["global_batch"], plan["width"]
micro = int(os.environ.get("MICRO_BATCH", plan["micro_batch"]))
count = batch // micro
log.info("host %s layers %d micro-batch %d x %d", os.environ.get("NODE", "-"), plan["layers_per_stage"], micro, count)
beat = time.monotonic()


def watch():
    while time.monotonic() - beat < plan["stalled_after_s"]:
        time.sleep(0.5)
    Path(f"flight/rank{rank}.pickle").write_bytes(_dump_fr_trace())
    log.info("stalled, flight recorder written")
    time.sleep(3)
    os._exit(75)


threading.Thread(target=watch, daemon=True).start()
torch.manual_seed(rank)
layers = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(plan["layers_per_stage"])])
optimizer = torch.optim.SGD(layers.parameters(), lr=plan["lr"])
data = torch.Generator().manual_seed(5)
for step in range(1, plan["steps"] + 1):
    optimizer.zero_grad()
    x_all = torch.randn(batch, width, generator=data)
    kept, total = [], 0.0
    for i in range(count):  # all forward, then all backward
        if rank == 0:
            x = x_all[i * micro : (i + 1) * micro]
        else:
            x = torch.empty(micro, width)
            dist.recv(x, rank - 1)
            x.requires_grad_()
        y = layers(x)
        if rank < world - 1:
            dist.send(y.detach(), rank + 1)
        kept.append((x, y))
    for x, y in kept:
        if rank == world - 1:
            loss = y.square().mean() / count
            total += loss.item()
            loss.backward()
        else:
            gradient = torch.empty_like(y)
            dist.recv(gradient, rank + 1)
            y.backward(gradient)
        if rank > 0:
            dist.send(x.grad, rank - 1)
    optimizer.step()
    beat = time.monotonic()
    if step % 5 == 0 and rank == world - 1:
        log.info("step %d loss %.4f", step, total)
log.info("done")
dist.barrier()
