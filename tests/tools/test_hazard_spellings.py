"""The most used hazards in code: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards

LOOP = "for batch in loader:\n    out = model(batch)\n    loss = criterion(out, batch)\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
MANY = "import torch.distributed as dist\ndist.init_process_group('nccl')\nrank = dist.get_rank()\n"

FAULTS: dict[str, list[str]] = {
    "graph_kept": [
        "total = 0\n" + LOOP + "    total += loss\n",
        "losses = []\n" + LOOP + "    losses.append(loss)\n",
        "total = 0\n" + LOOP + "    total = total + loss\n",
        "history = {'loss': []}\n" + LOOP + "    history['loss'].append(loss)\n",
        "meter = Meter()\n" + LOOP + "    meter.total += loss * len(batch)\n",
    ],
    "params_frozen": [
        "for p in model.parameters():\n    p.requires_grad = False\nopt = torch.optim.Adam(model.parameters())\n",
        "for p in model.parameters():\n    p.requires_grad_(False)\nopt = torch.optim.SGD(model.parameters(), 0.1)\n",
        "for name, p in model.named_parameters():\n    p.requires_grad = False\ntrainer = Trainer(model=model)\n",
        "model.requires_grad_(False)\nopt = torch.optim.AdamW(model.parameters())\n",
        "net = build().requires_grad_(False)\nopt = torch.optim.AdamW(net.parameters())\n",
    ],
    "seed_per_rank": [
        MANY + "torch.manual_seed(args.seed + rank)\nmodel = Net()\n",
        MANY + "torch.manual_seed(dist.get_rank())\nmodel = Net()\n",
        MANY + "set_seed(cfg.seed + self.rank)\nmodel = Net()\n",
        MANY + "seed = args.seed + rank\ntorch.manual_seed(seed)\nmodel = Net()\n",
        MANY + "torch.cuda.manual_seed_all(7 * local_rank)\nmodel = Net()\n",
    ],
    "map_location_missing": [
        MANY + "state = torch.load('last.pt')\n",
        MANY + "state = torch.load(path, weights_only=True)\n",
        MANY + "model.load_state_dict(torch.load(args.checkpoint)['model'])\n",
        MANY + "def resume(path):\n    return torch.load(str(path), weights_only=False)\nstate = resume('x.pt')\n",
        MANY + "from torch import load\nstate = load('last.pt')\n",
    ],
    "optimizer_not_saved": [
        "optimizer = torch.optim.AdamW(p)\ntorch.save({'model': model.state_dict(), 'epoch': epoch}, 'last.pt')\n",
        "optimizer = torch.optim.AdamW(p)\nstate = {'model': model.state_dict(), 'step': step}\ntorch.save(state, 'last.pt')\n",
        "optimizer = torch.optim.AdamW(p)\nstate = dict(model=model.state_dict(), step=step)\ntorch.save(state, 'last.pt')\n",
        "optim = make()\ntorch.save(obj={'net': net.state_dict(), 'iteration': it}, f='last.pt')\n",
        "self.optimizer = make()\nckpt = {'step': self.step}\nckpt['model'] = self.model.state_dict()\ntorch.save(ckpt, 'last.pt')\n",
    ],
    "collective_under_rank": [
        MANY + "if rank == 0:\n    dist.barrier()\n",
        MANY + "if not rank:\n    dist.all_reduce(t)\n",
        MANY + "if dist.get_rank() == 0:\n    torch.distributed.broadcast(t, 0)\n",
        MANY + "def log(t):\n    if rank != 0:\n        return\n    dist.all_reduce(t)\nlog(t)\n",
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n",
    ],
    "eval_logits_kept": [
        "trainer = Trainer(model, args, compute_metrics=accuracy)\ntrainer.train()\n",
        "trainer = Trainer(model=model, compute_metrics=lambda p: {})\ntrainer.evaluate()\n",
        "class Mine(Trainer):\n    pass\ntrainer = SFTTrainer(model, compute_metrics=f)\ntrainer.train()\n",
        "trainer = transformers.Trainer(model, args, compute_metrics=metrics.accuracy)\n",
        "trainer = DPOTrainer(\n    model,\n    compute_metrics=f,\n)\n",
    ],
    "loader_workers_zero": [
        "loader = DataLoader(Images('data'), batch_size=8)\n",
        "loader = DataLoader(Images('data'), batch_size=8, num_workers=0)\n",
        "loader = torch.utils.data.DataLoader(dataset, 32, shuffle=True)\n",
        "loader = DataLoader(dataset=Images('data'), batch_size=8)\n",
        "workers = 0\nloader = DataLoader(Images('data'), batch_size=8, num_workers=workers)\n",
    ],
    "unscaled_accumulation": [
        "for i, b in enumerate(l):\n    loss = model(b).loss\n    loss.backward()\n    if (i + 1) % accumulation_steps == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "for i, b in enumerate(l):\n    model(b).loss.backward()\n    if i % args.grad_accum == args.grad_accum - 1:\n        opt.step()\n        opt.zero_grad()\n",
        "for i, b in enumerate(l):\n    loss = model(b)\n    loss.backward()\n    update = (i + 1) % cfg.accum == 0\n    if update:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "for i, b in enumerate(l):\n    loss = model(b)\n    loss.backward()\n    if (i + 1) % accum_steps != 0:\n        continue\n    optimizer.step()\n    optimizer.zero_grad()\n",
        "for i, b in enumerate(l):\n    loss = model(b)\n    scaler.scale(loss).backward()\n    if (i + 1) % accum_steps == 0:\n        scaler.step(optimizer)\n        scaler.update()\n        optimizer.zero_grad()\n",
    ],
    "optimizer_before_wrap": [
        "opt = torch.optim.AdamW(model.parameters())\nmodel = FSDP(model)\n",
        "opt = torch.optim.AdamW(model.parameters(), lr=1e-3)\nfully_shard(model)\n",
        "opt = SGD(params=model.parameters(), lr=0.1)\nmodel = get_peft_model(model, config)\n",
        "opt = AdamW(model.parameters())\nmodel.resize_token_embeddings(len(tokenizer))\n",
        "opt = AdamW([p for p in model.parameters() if p.requires_grad])\nmodel = FullyShardedDataParallel(model)\n",
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "graph_kept": [
        "total = 0\n" + LOOP + "    total += loss.detach()\n",
        LOOP.replace("loss = criterion(out, batch)", "loss = 0\n    for t in terms:\n        loss = loss + t(out)"),
        "total = 0\n" + LOOP + "    total = total + loss.item() * len(batch)\n",
    ],
    "params_frozen": [
        "teacher = Net().requires_grad_(False)\nopt = torch.optim.Adam(model.parameters())\n",
        "for p in model.parameters():\n    p.requires_grad = False\nfor p in model.head.parameters():\n    p.requires_grad = True\nopt = torch.optim.Adam(model.head.parameters())\n",
        "for name, p in model.named_parameters():\n    if 'embed' in name:\n        p.requires_grad = False\nopt = torch.optim.Adam(model.parameters())\n",
    ],
    "seed_per_rank": [
        MANY + "torch.manual_seed(args.seed)\nmodel = Net()\ntorch.manual_seed(args.seed + rank)\n",
        MANY + "torch.manual_seed(args.seed + rank)\nmodel = DistributedDataParallel(Net())\n",
        MANY + "gen = torch.Generator().manual_seed(args.seed + rank)\nmodel = Net()\n",
    ],
    "map_location_missing": [
        MANY + "state = torch.load('last.pt', map_location='cpu')\n",
        MANY + "state = torch.load('last.pt', device)\n",
        "state = torch.load('last.pt')\nmodel.load_state_dict(state)\n",
    ],
    "optimizer_not_saved": [
        "optimizer = torch.optim.AdamW(p)\ntorch.save(model.state_dict(), 'final.pt')\n",
        "optimizer = torch.optim.AdamW(p)\ntorch.save({'model': model.state_dict(), 'config': vars(args)}, 'final.pt')\n",
        "optimizer = torch.optim.AdamW(p)\nstate = dict(model=model.state_dict(), optimizer=optimizer.state_dict(), step=step)\ntorch.save(state, 'last.pt')\n",
    ],
    "collective_under_rank": [
        MANY + "if rank == 0:\n    save()\ndist.barrier()\n",
        MANY + "if rank == 0:\n    dist.broadcast(a, 0)\nelse:\n    dist.broadcast(a, 0)\n",
        MANY + "if rank > 0:\n    dist.barrier()\nload()\nif rank == 0:\n    dist.barrier()\n",
    ],
    "eval_logits_kept": [
        "trainer = Trainer(model, compute_metrics=f, preprocess_logits_for_metrics=argmax)\n",
        "trainer = Trainer(model, compute_metrics=None)\n",
        "trainer = Seq2SeqTrainer(model, compute_metrics=f)\n",
    ],
    "loader_workers_zero": [
        "loader = DataLoader(TensorDataset(x, y), batch_size=8)\n",
        "loader = DataLoader(Images('data'), batch_size=8, num_workers=args.workers)\n",
        "loader = DataLoader(Images('data'), **options)\n",
    ],
    "unscaled_accumulation": [
        "for i, b in enumerate(l):\n    loss = model(b).loss / accumulation_steps\n    loss.backward()\n    if (i + 1) % accumulation_steps == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "for i, b in enumerate(l):\n    loss = model(b).loss\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n    if i % accumulation_steps == 0:\n        log(loss)\n",
        "for i, b in enumerate(l):\n    loss = model(b).sum()\n    (loss * (1 / accum)).backward()\n    if (i + 1) % accum == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
    ],
    "optimizer_before_wrap": [
        "model = FSDP(model)\nopt = torch.optim.AdamW(model.parameters())\n",
        "opt = AdamW(reward.parameters())\nmodel = FSDP(model)\n",
        "opt = AdamW(model.parameters())\nmodel = FSDP(model)\nopt = AdamW(model.parameters())\n",
    ],
}  # fmt: skip


def names(folder: Path, source: str) -> set[str]:
    (folder / "train.py").write_text(textwrap.dedent(source))
    return {e.key.removeprefix("code.") for e in find_hazards(Workspace([folder])).evidence}


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path: Path, name: str, source: str) -> None:
    assert name in names(tmp_path, source)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path: Path, name: str, source: str) -> None:
    assert name not in names(tmp_path, source)
