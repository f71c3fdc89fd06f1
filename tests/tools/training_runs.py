"""Small real training runs on the CPU, made once: `python training_runs.py FOLDER` leaves a folder for each run.

healthy, frozen, detached, nan, rounded, corrupt, vanishing, exploding: a small network under AdamW with torch.save checkpoints.
adapter, adapter_untrained: PEFT adapters of a tiny GPT-2. hf: the transformers Trainer. mixtral, moe, moe_collapsed: a tiny
mixture of experts. lightning: a Lightning checkpoint. Tests take them from `made()`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO

VERSION = "6"  # raise it when a run changes, so that cached ones are made anew


def made(root: Path) -> Path:
    """The folder with all runs, made on first use and shared by all test processes."""
    from filelock import FileLock

    folder = root / ".pytest_cache" / "doctor" / f"training-runs-{VERSION}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            done = subprocess.run([sys.executable, __file__, str(folder)], capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[-3000:]
            (folder / "done").touch()
    return folder


def record(model: Any, step: int, file: TextIO) -> None:
    """The recorder as `inspect_gradients` documents it."""
    for name, p in model.named_parameters():
        g = None if p.grad is None else p.grad.detach().float()
        row = {"step": step, "name": name, "norm": None if g is None else g.norm().item()}
        if g is not None:
            row |= {"max": g.abs().max().item(), "nonfinite": int((~g.isfinite()).sum())}
        file.write(json.dumps(row | {"weight_norm": p.detach().float().norm().item()}) + "\n")


def _blocks(depth: int = 4, width: int = 32, scale: float = 0.0, sigmoid: bool = False) -> Any:
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width) if not scale and not sigmoid else nn.Identity()
            self.up = nn.Linear(width, width)
            self.down = nn.Linear(width, width)
            if scale:
                nn.init.normal_(self.up.weight, std=scale)
                nn.init.normal_(self.down.weight, std=scale)

        def forward(self, x: Any) -> Any:
            inner = self.up(self.norm(x))
            inner = torch.sigmoid(inner) if sigmoid else torch.relu(inner)
            return torch.sigmoid(self.down(inner)) if sigmoid else self.down(inner) + (0 if scale else x)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(50, width)
            self.layers = nn.ModuleList(Block() for _ in range(depth))
            self.norm = nn.Identity() if scale or sigmoid else nn.LayerNorm(width)
            self.lm_head = nn.Linear(width, 50, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.embed_tokens(ids)
            for layer in self.layers:
                x = layer(x)
            return self.lm_head(self.norm(x))

    return Net()


def _train(
    folder: Path, model: Any, steps: int = 30, save: tuple[int, ...] = (10, 30), lr: float = 3e-3, **chosen: Any
) -> Any:
    """A loop as people write it; checkpoints, gradients.jsonl and train.log."""
    import torch
    from torch import nn

    folder.mkdir(parents=True, exist_ok=True)
    parameters = chosen.get("parameters") or [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 5))
    generator = torch.Generator().manual_seed(5)
    with (folder / "gradients.jsonl").open("w") as grads, (folder / "train.log").open("w") as log:
        for step in range(1, steps + 1):
            ids = torch.randint(0, 50, (16, 12), generator=generator)
            model.steps = step
            loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            record(model, step, grads)
            if step == steps and chosen.get("gradients"):
                torch.save({n: p.grad for n, p in model.named_parameters() if p.grad is not None}, folder / "grads.pt")
            optimizer.step()
            scheduler.step()
            log.write(f"step {step} loss {loss.item():.5f} lr {scheduler.get_last_lr()[0]:.3e}\n")
            if step in save:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state | {"scheduler": scheduler.state_dict()}, folder / f"ckpt_step_{step}.pt")
    return optimizer


def _plain(root: Path) -> None:
    import torch

    _train(root / "healthy", _blocks(), gradients=True)
    frozen = _blocks()
    for p in frozen.layers[1].parameters():
        p.requires_grad_(False)
    _train(root / "frozen", frozen)
    detached = _blocks()  # in the optimizer, yet no gradient ever comes: the block is cut off from the graph
    block = detached.layers[2]
    inner = type(block).forward
    block.forward = lambda x: x + (inner(block, x) - x).detach()
    _train(root / "detached", detached, parameters=list(detached.parameters()))
    broken = _blocks()  # the slope of a root at zero is infinite, and infinity times zero is NaN
    middle = broken.layers[2]
    whole = type(middle).forward
    middle.forward = lambda x: whole(middle, x) + ((middle.up(x) * 0).square().sqrt() if broken.steps >= 8 else 0)
    broken.steps = 0
    _train(root / "nan", broken, steps=10, save=(5, 10))
    _train(root / "vanishing", _blocks(depth=10, sigmoid=True), gradients=True)
    _train(root / "exploding", _blocks(depth=10, scale=1.2), gradients=True, lr=1e-6, steps=4, save=(4,))
    _train(root / "rounded", _blocks().to(torch.bfloat16), lr=1e-9)  # steps below what bfloat16 resolves
    (root / "corrupt").mkdir(exist_ok=True)
    state = torch.load(root / "healthy" / "ckpt_step_30.pt", weights_only=True)
    moments = state["optimizer"]["state"]
    moments[3]["exp_avg_sq"][0, 0] = -1e-4
    moments[7]["exp_avg"][0] = float("nan")
    moments[5]["exp_avg_sq"].zero_()
    moments[9]["exp_avg"] = moments[9]["exp_avg"] * 1e6
    moments[2]["step"] = torch.tensor(2.0)
    moments[15]["exp_avg_sq"] = torch.full((7,), 1e-6)
    state["optimizer"]["param_groups"][0]["lr"] = 0.0
    torch.save(state, root / "corrupt" / "ckpt_step_30.pt")


def _adapters(root: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=50, n_positions=32)
    for name in ("adapter", "adapter_untrained"):
        torch.manual_seed(3)
        lora = LoraConfig(r=4, target_modules=["c_attn"])
        model: Any = get_peft_model(GPT2LMHeadModel(config), lora)  # pyright: ignore[reportArgumentType]
        chosen = [p for p in model.parameters() if p.requires_grad]
        if name == "adapter_untrained":  # made before the adapters were put in, so that it holds the base alone
            chosen = [p for p in model.parameters() if not p.requires_grad]
        optimizer = torch.optim.AdamW(chosen, lr=1e-2)
        for step in range(1, 21):
            ids = torch.randint(0, 50, (4, 16))
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step in (5, 20):
                folder = root / name / f"checkpoint-{step}"
                model.save_pretrained(folder)
                torch.save(optimizer.state_dict(), folder / "optimizer.pt")
                (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))


def _hf(root: Path) -> None:
    import torch
    from torch.utils.data import Dataset
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    class Rows(Dataset):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, i: int) -> dict[str, Any]:
            ids = torch.randint(0, 50, (16,), generator=torch.Generator().manual_seed(i))
            return {"input_ids": ids, "labels": ids}

    config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=50, n_positions=32)
    arguments = TrainingArguments(
        str(root / "hf"), max_steps=6, save_steps=3, per_device_train_batch_size=4, learning_rate=1e-3, use_cpu=True,
        report_to=[], logging_steps=1, disable_tqdm=True,
    )  # fmt: skip
    Trainer(GPT2LMHeadModel(config), arguments, train_dataset=Rows()).train()


def _mixtures(root: Path) -> None:
    import torch
    from torch import nn

    class Mixture(nn.Module):
        """One layer of 8 experts, the best two of each token chosen."""

        def __init__(self, bias: float) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 8, bias=False)
            self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(8))
            self.register_buffer("e_score_correction_bias", torch.zeros(8))
            self.e_score_correction_bias[:2] = bias  # pyright: ignore[reportIndexIssue]

        def forward(self, x: Any) -> Any:
            scores = self.gate(x).softmax(-1)
            chosen = (scores + self.e_score_correction_bias).topk(2, -1).indices
            self.counts = torch.bincount(chosen.flatten(), minlength=8)
            out = x
            for e, expert in enumerate(self.experts):
                mask = (chosen == e).any(-1, keepdim=True)
                if mask.any():
                    out = out + mask * scores[..., e : e + 1] * expert(x)
            return out

    class Net(nn.Module):
        def __init__(self, bias: float) -> None:
            super().__init__()
            self.embed_tokens = nn.Embedding(50, 16)
            self.layers = nn.ModuleList(nn.ModuleDict({"mlp": Mixture(bias)}) for _ in range(2))
            self.lm_head = nn.Linear(16, 50)

        def forward(self, ids: Any) -> Any:
            x = self.embed_tokens(ids)
            for layer in self.layers:
                x = layer["mlp"](x)  # pyright: ignore[reportIndexIssue]
            return self.lm_head(x)

    for name, bias in (("moe", 0.0), ("moe_collapsed", 10.0)):
        torch.manual_seed(1)
        folder = root / name
        folder.mkdir(exist_ok=True)
        model = Net(bias)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        with (folder / "train.log").open("w") as log:
            for step in range(1, 41):
                ids = torch.randint(0, 50, (16, 12))
                loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                for i, layer in enumerate(model.layers):
                    counts = layer["mlp"].counts.tolist()  # pyright: ignore[reportIndexIssue]
                    log.write(f"step {step} loss {loss.item():.4f} layer {i} tokens_per_expert: {counts}\n")
                if step in (10, 40):
                    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                    torch.save(state, folder / f"ckpt_step_{step}.pt")


def _fused(root: Path) -> None:
    """A mixture whose experts are one parameter in the model and many tensors in the file."""
    import torch
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4,
    )  # fmt: skip
    model: Any = MixtralForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 5):
        ids = torch.randint(0, 64, (2, 16))
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step in (2, 4):
            folder = root / "mixtral" / f"checkpoint-{step}"
            model.save_pretrained(folder)
            torch.save(optimizer.state_dict(), folder / "optimizer.pt")


def _lightning(root: Path) -> None:
    import lightning
    import torch
    from torch import nn
    from torch.utils.data import DataLoader

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))

        def training_step(self, batch: Any, _index: int) -> Any:
            return nn.functional.cross_entropy(self.net(batch), torch.zeros(len(batch), dtype=torch.long))

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        max_steps=5, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False
    )
    trainer.fit(Module(), DataLoader(torch.randn(64, 8), batch_size=8))  # pyright: ignore[reportArgumentType]
    trainer.save_checkpoint(root / "lightning" / "step=5.ckpt")


def main(root: Path) -> None:
    """Make every run below `root`."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    _plain(root)
    _adapters(root)
    _hf(root)
    _mixtures(root)
    _fused(root)
    _lightning(root)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
