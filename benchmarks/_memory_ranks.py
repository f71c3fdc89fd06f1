"""The same measurement in two ranks over Gloo: what DDP adds and what FSDP divides."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import transformers.masking_utils
from _memory_steps import SMALL, Case, Live, build, plan

RANKS = 2


def cases() -> list[Case]:
    """DDP and FSDP of a small model, the latter also with recomputation and with longer sequences."""
    ddp, sharded = plan(world=RANKS, sequence=256), plan(world=RANKS, zero=3, fsdp=True, sequence=256)
    wide = {**SMALL, "num_hidden_layers": 12, "vocab_size": 2000}
    return [
        Case("2 ranks, DDP autocast", "llama", SMALL, ddp),
        Case("2 ranks, DDP fp32", "llama", SMALL, replace(ddp, precision="fp32")),
        Case("2 ranks, FSDP bf16", "llama", SMALL, sharded),
        Case("2 ranks, FSDP bf16, 64 tokens", "llama", wide, replace(sharded, sequence=64)),
        Case("2 ranks, FSDP bf16, checkpointed", "llama", wide, replace(sharded, sequence=512, checkpointing="full")),
        Case("2 ranks, FSDP fp32", "llama", wide, replace(sharded, precision="fp32")),
    ]


def measure(case: Case) -> tuple[int, dict[str, int], dict[str, Any]]:
    """Peak bytes of the fuller rank, what lay there, and the configuration."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(_rank, (case, port, queue), nprocs=RANKS)  # pyright: ignore[reportPrivateImportUsage]
    return max((queue.get() for _ in range(RANKS)), key=lambda x: x[0])


def _rank(rank: int, case: Case, port: int, queue: Any) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    transformers.masking_utils.find_packed_sequence_indices = lambda *_, **__: None
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    model, config = build(case)
    runs = _sharded(model, case) if case.plan.fsdp else torch.nn.parallel.DistributedDataParallel(model)
    update = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)
    live = Live()
    for tensor in [*model.parameters(), *model.buffers()]:
        live.see(tensor.data, "weights")
    tokens = torch.randint(0, 1000, (case.plan.micro_batch, case.plan.sequence))
    for step in range(2):
        live.peak, live.keep = live.now, step == 1
        with live, torch.autocast("cpu", torch.bfloat16, enabled=case.plan.precision == "mixed" and not case.plan.fsdp):
            loss = runs(input_ids=tokens, labels=tokens, use_cache=False).loss
        with live:
            loss.backward()
            del loss
            update.step()
            update.zero_grad()
    queue.put((live.peak, live.at, config))
    dist.barrier()
    dist.destroy_process_group()


def _sharded(model: Any, case: Case) -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))
    dtype = None if case.plan.precision == "fp32" else torch.bfloat16
    policy = MixedPrecisionPolicy(param_dtype=dtype)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)
