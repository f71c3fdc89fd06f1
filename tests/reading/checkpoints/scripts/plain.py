"""Lightning checkpoints, files of `torch.save`, and folders laid out as Megatron does: `python plain.py FOLDER`.

Megatron is not installed where tests run: its two layouts are written here with torch, from their description.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import lightning
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


def small() -> torch.nn.Sequential:
    """An embedding and two layers."""
    return torch.nn.Sequential(torch.nn.Embedding(64, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, 64))


def loss_of(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Cross entropy of reproducing the ids."""
    return torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())


class Small(lightning.LightningModule):
    """The same as a Lightning module."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = small()

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        return loss_of(self.model, batch)

    def configure_optimizers(self) -> dict:  # pyright: ignore
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


def with_lightning(out: Path) -> None:
    """Four steps, a file at every second one and `last.ckpt`."""
    keep = ModelCheckpoint(out / "checkpoints", every_n_train_steps=2, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        max_steps=4, accelerator="cpu", callbacks=[keep], logger=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Small(), DataLoader(torch.randint(0, 64, (16, 8)), batch_size=2))  # pyright: ignore


def with_torch(out: Path) -> None:
    """Two files of a hand-written loop."""
    out.mkdir(parents=True)
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    for step in range(1, 5):
        loss_of(model, torch.randint(0, 64, (2, 8))).backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 2 == 0:
            state = {
                "model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict(),
                "step": step, "rng_state": torch.get_rng_state(), "sampler": {"consumed": step * 2},
            }  # fmt: skip
            torch.save(state, out / f"step_{step}.pt")


def with_megatron(out: Path) -> None:
    """The classic layout with two tensor-parallel ranks, and torch_dist with its files beside the metadata."""
    arguments = argparse.Namespace(
        hidden_size=16, num_layers=2, padded_vocab_size=64, tensor_model_parallel_size=2,
        pipeline_model_parallel_size=1, iteration=4, consumed_train_samples=16,
    )  # fmt: skip
    scheduler = {"max_lr": 1e-3, "num_steps": 16, "lr_decay_steps": 100}
    for iteration in (2, 4):
        arguments.iteration, arguments.consumed_train_samples = iteration, iteration * 4
        scheduler["num_steps"] = iteration * 4
        for rank in range(2):
            folder = out / "megatron" / f"iter_{iteration:07d}" / f"mp_rank_{rank:02d}"
            folder.mkdir(parents=True)
            torch.save(_classic(arguments, scheduler, iteration, rank), folder / "model_optim_rng.pt")
        folder = out / "megatron_dist" / f"iter_{iteration:07d}"
        weights = {f"decoder.layers.{n}.mlp.linear_fc1.weight": torch.randn(32, 16) for n in range(2)}
        moments = {f"optimizer.state.exp_avg.{name}": torch.randn_like(value) for name, value in weights.items()}
        dcp.save({**weights, **moments}, checkpoint_id=str(folder), no_dist=True)
        common = {
            "args": arguments, "checkpoint_version": 3.0, "iteration": iteration, "opt_param_scheduler": scheduler,
            "optimizer": {"optimizer": {"param_groups": [{"lr": 1e-3, "step": iteration}]}},
        }  # fmt: skip
        torch.save(common, folder / "common.pt")
        (folder / "metadata.json").write_text('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    for layout in ("megatron", "megatron_dist"):
        (out / layout / "latest_checkpointed_iteration.txt").write_text("4")


def _classic(arguments: argparse.Namespace, scheduler: dict, iteration: int, rank: int) -> dict:
    layers = {
        "embedding.word_embeddings.weight": torch.randn(32, 16),
        "decoder.layers.0.mlp.linear_fc1.weight": torch.randn(32, 16),
        "decoder.layers.1.mlp.linear_fc1.weight": torch.randn(32, 16),
        "decoder.final_layernorm.weight": torch.ones(16),
        "decoder.final_layernorm.bias": torch.zeros(16),
    }
    moments = {
        n: {"exp_avg": torch.randn_like(t), "exp_avg_sq": torch.rand_like(t)} for n, t in enumerate(layers.values())
    }
    return {
        "args": arguments, "checkpoint_version": 3.0, "iteration": iteration, "model": layers,
        "optimizer": {"optimizer": {"state": moments, "param_groups": [{"lr": 1e-3, "step": iteration}]}},
        "opt_param_scheduler": scheduler,
        "rng_state": [{"torch_rng_state": torch.get_rng_state(), "rank": rank, "rng_tracker_states": {}}],
        "num_floating_point_operations_so_far": 0,
    }  # fmt: skip


def main(out: Path) -> None:
    """All four layouts."""
    torch.manual_seed(0)
    with_lightning(out / "lightning")
    with_torch(out / "torch")
    with_megatron(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
