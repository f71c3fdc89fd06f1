"""Trains on two ranks under the recorder: `torchrun ranks.py RUN ddp|fsdp [STEP]`; at STEP rank 1 gets a bad sample."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recorder"))
from traindoctor_recorder import Recorder


def sharded(model: nn.Sequential) -> nn.Sequential:
    """The model with the parameters of each layer cut over the ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(run: str, kind: str, bad: int) -> None:
    """Sixty steps."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    model = DistributedDataParallel(plain) if kind == "ddp" else sharded(plain)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    recorder = Recorder(run, model, optimizer)
    for step in range(1, 61):
        x, y = torch.randn(8, 16), torch.randint(0, 4, (8,))
        if step == bad and dist.get_rank() == 1:
            x[3, 5] = float("nan")
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        recorder.step(loss, batch={"x": x, "y": y})
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 0)
