"""DeepSpeed ZeRO 1, 2 and 3 with two ranks on the CPU: `torchrun --nproc-per-node 2 zero.py FOLDER`."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import deepspeed
import torch

# The shared-memory op would be compiled for a minute; Gloo does without it.
importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def train(stage: int, folder: Path) -> None:
    """Two steps, each saved under its own tag, in bfloat16 with FP32 partitions."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 64))
    settings = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
    for step in range(1, 3):
        ids = torch.randint(0, 64, (2, 8))
        logits = engine(ids)
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids.flatten())
        engine.backward(loss)
        engine.step()
        engine.save_checkpoint(str(folder), client_state={"rng": torch.get_rng_state(), "step": step})
    engine.destroy()


def main(out: Path) -> None:
    """One folder for each stage."""
    deepspeed.init_distributed("gloo")
    for stage in (1, 2, 3):
        train(stage, out / f"zero{stage}")
    torch.distributed.barrier()
    os._exit(0)  # everything is on disk; taking Gloo's threads down aborts now and then


if __name__ == "__main__":
    main(Path(sys.argv[1]))
