"""Hazards of saving and taking up again: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import pytest

from tests.tools.test_needs_of_hazards import names

ASKED = "Since I resumed the run from its checkpoint the loss is higher. The model was loaded, weights_only was refused."
MADE = "optimizer = torch.optim.AdamW(model.parameters())\nscheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)\n"
BACK = "state = torch.load('last.pt')\nmodel.load_state_dict(state['model'])\noptimizer.load_state_dict(state['optim'])\n"

FAULTS: dict[str, list[str]] = {
    "scheduler_not_saved": [
        MADE + "torch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'step': 3}, 'a.pt')\n",
        MADE + "torch.save(dict(model=model.state_dict(), optim=optimizer.state_dict(), epoch=1), path)\n",
        MADE + "state = {'model': model.state_dict(), 'epoch': 3}\nstate['optim'] = optimizer.state_dict()\ntorch.save(state, 'a.pt')\n",
        MADE + "def save(step):\n    ckpt = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': step}\n    torch.save(ckpt, 'a.pt')\nsave(3)\n",
        MADE + "torch.save(obj={'model_state_dict': model.state_dict(), 'optimizer_state_dict': optimizer.state_dict()}, f='a.pt')\n",
    ],
    "rng_not_saved": [
        MADE + BACK + "torch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'step': 3}, 'a.pt')\n",
        MADE + BACK + "torch.save(dict(model=model.state_dict(), optim=optimizer.state_dict(), epoch=1), path)\n",
        MADE + BACK + "state = {'model': model.state_dict(), 'epoch': 3}\nstate['optim'] = optimizer.state_dict()\ntorch.save(state, 'a.pt')\n",
        MADE + BACK + "def save(step):\n    ckpt = {'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'step': step}\n    torch.save(ckpt, 'a.pt')\nsave(3)\n",
        MADE + BACK + "state = {}\nstate['model'] = model.state_dict()\nstate['optim'] = optimizer.state_dict()\nstate['step'] = 3\ntorch.save(state, 'a.pt')\n",
    ],
    "data_state_not_saved": [
        MADE + BACK + f"data = {made}\ntorch.save({{'model': model.state_dict(), 'optim': optimizer.state_dict(), 'step': 3}}, 'a.pt')\n"
        for made in (
            "load_dataset('c4', streaming=True)", "StreamingDataset('s3://x')", "StreamingDataLoader(d)",
            "load_dataset('json', data_files='a.jsonl', split='train', streaming=True).shuffle(3)",
            "type('Rows', (IterableDataset,), {})()",
        )
    ],
    "strict_false_load": [
        "missing = model.load_state_dict(torch.load('a.pt'), strict=False)\n",
        "model.load_state_dict(torch.load('a.pt'), False)\n",
        "m, u = net.load_state_dict(state, strict=False)\nprint(len(m))\n",
        "model = AutoModel.from_pretrained('a', ignore_mismatched_sizes=True)\n",
        "kw = dict(strict=False)\nself.model.load_state_dict(state, **kw)\n",
    ],
    "filtered_load": [
        "model.load_state_dict({k: v for k, v in state.items() if 'encoder' in k}, strict=False)\n",
        "kept = {k: v for k, v in state.items() if k.startswith('encoder.')}\nmodel.load_state_dict(kept, strict=False)\n",
        "kept = {k[8:]: v for k, v in torch.load('a.pt').items() if k.startswith('encoder.')}\nr = model.load_state_dict(kept, strict=False)\n",
        "kept = {}\nfor k, v in state.items():\n    if 'encoder' in k:\n        kept[k] = v\nmodel.load_state_dict(kept, strict=False)\n",
        "kept = dict((k, v) for k, v in state.items() if 'encoder' in k)\nmodel.load_state_dict(kept, strict=False)\n",
    ],
    "optimizer_rebuilt": [
        MADE + "optimizer.load_state_dict(state['optim'])\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)\n",
        "def prepare(optimizer, model):\n    optimizer = optimizer.__class__(model.parameters(), lr=1e-4)\n    return optimizer\n",
        "def prepare(optimizer, model):\n    kind = type(optimizer)\n    optimizer = kind(model.parameters())\n    return optimizer\n",
        "class T:\n    def resume(self, state):\n        self.optimizer.load_state_dict(state['optim'])\n        self.optimizer = AdamW(self.model.parameters())\n",
        MADE + "optimizer.load_state_dict(state['optim'])\nfor p in model.layers.parameters():\n    p.requires_grad = True\noptimizer = SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)\n",
    ],
    "position_unused": [
        "def loader(data, start_step=0):\n    return DataLoader(data, batch_size=4)\nloader(d, start_step=3)\n",
        "def make_loader(data, resume_step):\n    sampler = DistributedSampler(data)\n    return sampler\nmake_loader(d, 3)\n",
        "def build(data, *, consumed_samples):\n    return RandomSampler(data)\nbuild(d, consumed_samples=3)\n",
        "class D:\n    def train_dataloader(self, skip_batches=0):\n        return DataLoader(self.data)\n",
        "def build(data, train_state):\n    batches = BatchSampler(data, 4, False)\n    return DataLoader(data, batch_sampler=batches)\nbuild(d, state)\n",
    ],
    "adapter_not_trainable": [
        "model = PeftModel.from_pretrained(base, 'out')\ntrainer = Trainer(model=model, args=args)\n",
        "model = PeftModel.from_pretrained(base, 'out', is_trainable=False)\nopt = AdamW(model.parameters())\n",
        "model = AutoPeftModelForCausalLM.from_pretrained('out')\ntrainer = SFTTrainer(model, args)\n",
        "class T:\n    def start(self):\n        self.model = PeftModel.from_pretrained(self.base, 'out')\n        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-4)\n",
        "model = peft.PeftModel.from_pretrained(base, adapter)\nmodel.train()\noptimizer = torch.optim.AdamW([p for p in model.parameters()], lr=1e-4)\n",
    ],
    "adapter_over_adapter": [
        "model = get_peft_model(base, config)\nmodel = PeftModel.from_pretrained(model, 'out')\n",
        "model = get_peft_model(base, config)\nif resume:\n    model = PeftModel.from_pretrained(model, resume, is_trainable=True)\n",
        "peft_model = peft.get_peft_model(base, LoraConfig(r=8))\nm = peft.PeftModel.from_pretrained(peft_model, 'out')\n",
        "class T:\n    def build(self):\n        self.model = get_peft_model(self.base, self.config)\n        self.model = PeftModel.from_pretrained(self.model, self.path)\n",
        "model = get_peft_model(base, config)\nmodel = PeftModelForCausalLM.from_pretrained(model, 'out')\n",
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "scheduler_not_saved": [
        MADE + "torch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'scheduler': scheduler.state_dict(), 'step': 3}, 'a.pt')\n",
        MADE + "torch.save(model.state_dict(), 'final.pt')\n",
        "optimizer = AdamW(model.parameters())\ntorch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'step': 3}, 'a.pt')\n",
    ],
    "rng_not_saved": [
        MADE + BACK + "torch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'rng': torch.get_rng_state(), 'step': 3}, 'a.pt')\n",
        MADE + BACK + "torch.save({'model': model.state_dict()}, 'final.pt')\n",
        MADE + BACK + "torch.save({'model': model.state_dict(), 'step': 3, 'random_state': random.getstate(), 'optim': o.state_dict()}, 'a.pt')\n",
    ],
    "data_state_not_saved": [
        MADE + BACK + "data = load_dataset('c4', streaming=True)\ntorch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'loader': loader.state_dict(), 'step': 3}, 'a.pt')\n",
        MADE + BACK + "data = load_dataset('c4')\ntorch.save({'model': model.state_dict(), 'optim': optimizer.state_dict(), 'step': 3}, 'a.pt')\n",
        MADE + BACK + "data = load_dataset('c4', streaming=True)\ntorch.save(model.state_dict(), 'final.pt')\n",
    ],
    "strict_false_load": [
        "model.load_state_dict(state)\n",
        "missing, extra = model.load_state_dict(state, strict=False)\nassert not missing, missing\n",
        "model.load_state_dict(state, strict=True)\n",
    ],
    "filtered_load": [
        "model.load_state_dict({k: v for k, v in state.items() if 'encoder' in k})\n",
        "kept = {k: v for k, v in state.items() if k in model.state_dict()}\nmodel.load_state_dict(kept, strict=False)\n",
        "kept = {k: v for k, v in state.items()}\nmodel.load_state_dict(kept, strict=False)\n",
    ],
    "optimizer_rebuilt": [
        MADE + "optimizer.load_state_dict(state['optim'])\n",
        MADE + "optimizer = accelerator.prepare(optimizer)\n",
        "optimizer = AdamW(model.parameters())\nd_optimizer = AdamW(critic.parameters())\noptimizer.load_state_dict(s['o'])\n",
    ],
    "position_unused": [
        "def loader(data, start_step=0):\n    return DataLoader(data[start_step * 4:], batch_size=4)\n",
        "def loader(data, start_step=0):\n    s = Sampler(data)\n    s.skip(start_step)\n    return DataLoader(data, sampler=s)\n",
        "def log(start_step):\n    print('from', start_step)\n",
    ],
    "adapter_not_trainable": [
        "model = PeftModel.from_pretrained(base, 'out', is_trainable=True)\ntrainer = Trainer(model=model)\n",
        "model = PeftModel.from_pretrained(base, 'out')\nprint(model.generate(x))\n",
        "model = PeftModel.from_pretrained(base, 'out')\nmodel = model.merge_and_unload()\ntrainer = Trainer(model=model)\n",
    ],
    "adapter_over_adapter": [
        "if resume:\n    model = PeftModel.from_pretrained(base, resume)\nelse:\n    model = get_peft_model(base, config)\n",
        "model = get_peft_model(base, config)\nother = PeftModel.from_pretrained(base2, 'out')\n",
        "model = get_peft_model(base, config)\nmodel = model.merge_and_unload()\nmodel = PeftModel.from_pretrained(model, 'out')\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path, name, source):
    assert name in names(tmp_path, source, ASKED)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path, name, source):
    assert name not in names(tmp_path, source, ASKED)
