"""Distributed checkpoints of two ranks as torchtitan saves them: `torchrun --nproc-per-node 2 dcp.py FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Progress:
    """What torchtitan calls its train state: the step, saved as bytes."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict:
        return {"step": torch.tensor(self.step, dtype=torch.int32), "ntokens_seen": torch.tensor(self.step * 64)}

    def load_state_dict(self, state: dict) -> None:
        self.step = int(state["step"])


def main(out: Path) -> None:
    """Four steps, a save at every second one."""
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 64))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    progress = Progress()
    for step in range(1, 5):
        ids = torch.randint(0, 64, (2, 8))
        torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        progress.step = step
        if step % 2 == 0:
            weights, moments = get_state_dict(model, optimizer)
            loader = {f"dp_rank_{dist.get_rank()}": {"sample": step * 4}}
            state = {"model": weights, "optimizer": moments, "lr_scheduler": scheduler, "train_state": progress}
            dcp.save({**state, "dataloader": loader}, checkpoint_id=str(out / "dcp" / f"step-{step}"))
    dist.barrier()
    os._exit(0)  # everything is on disk; taking Gloo's threads down aborts now and then


if __name__ == "__main__":
    main(Path(sys.argv[1]))
