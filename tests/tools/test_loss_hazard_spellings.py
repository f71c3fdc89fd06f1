"""Hazards of losses, labels and masks: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import pytest

from tests.tools.test_hazard_spellings import names

LM = "from transformers import AutoModelForCausalLM, Trainer\nmodel = AutoModelForCausalLM.from_pretrained('a')\n"

FAULTS: dict[str, list[str]] = {
    "logsoftmax_twice": [
        "loss = F.cross_entropy(F.log_softmax(x, dim=1), y)\n",
        "logp = torch.log_softmax(model(x), -1)\nloss = F.cross_entropy(logp, y)\n",
        "criterion = nn.CrossEntropyLoss()\nloss = criterion(model(x).log_softmax(dim=-1), y)\n",
        "class Net(nn.Module):\n    def forward(self, x):\n        return F.log_softmax(self.head(x), dim=1)\nloss = nn.CrossEntropyLoss()(Net()(x), y)\n",
        "class Net(nn.Module):\n    def __init__(self):\n        self.layers = nn.Sequential(nn.Linear(4, 3), nn.LogSoftmax(dim=1))\n    def forward(self, x):\n        return self.layers(x)\nloss = F.cross_entropy(Net()(x), y)\n",
    ],
    "log_of_raw": [
        "loss = -torch.log(torch.softmax(x, -1)).mean()\n",
        "probs = F.softmax(x, dim=1)\nentropy = -(probs * probs.log()).sum()\n",
        "p = torch.sigmoid(x)\nloss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()\n",
        "prob = dist.probs\nh = -(prob * torch.log2(prob)).sum(-1)\n",
        "loss = -x.softmax(-1)[range(4), y].log().mean()\n",
    ],
    "no_eps": [
        "x = (x - x.mean()) / x.std()\n",
        "adv = (r - r.mean(dim=1)) / r.std(dim=1)\n",
        "loss = (loss * mask).sum() / mask.sum()\n",
        "q = q / q.norm(dim=-1, keepdim=True)\n",
        "std = rewards.std()\nadv = (rewards - rewards.mean()) / std\n",
    ],
    "label_shift_twice": [
        LM + "out = model(ids[:, :-1], labels=ids[:, 1:])\n",
        LM + "labels = ids[:, 1:].clone()\nloss = model(input_ids=ids[:, :-1], labels=labels).loss\n",
        LM + "def row(ids):\n    return {'input_ids': ids[:-1], 'labels': ids[1:]}\n",
        LM + "def row(ids):\n    x, y = ids[:-1], ids[1:]\n    return {'input_ids': x, 'labels': y}\n",
        LM + "def row(ids):\n    return dict(input_ids=ids[:-1], labels=ids[1:])\n",
    ],
    "in_place_on_leaf": [
        "model.fc.weight *= 0.5\n",
        "for m in model.modules():\n    m.weight -= lr * m.weight.grad\n",
        "self.head.bias += 1\n",
        "for p in model.parameters():\n    p -= lr * p.grad\n",
        "model.fc.weight.mul_(0.5)\n",
    ],
    "preference_beta_zero": [
        "config = DPOConfig(output_dir='out', beta=0.0)\n",
        "trainer = DPOTrainer(model, ref, beta=0)\n",
        "BETA = 0.0\nconfig = DPOConfig(beta=BETA)\n",
        "args = trl.KTOConfig(beta=0.0)\n",
        "kw = dict(beta=0.0, lr=1)\nconfig = DPOConfig(**kw)\n",
    ],
    "loss_made_to_require_grad": [
        "loss = torch.tensor(loss.item(), requires_grad=True)\nloss.backward()\n",
        "loss = F.mse_loss(a.detach(), b)\nloss.requires_grad_(True)\nloss.backward()\n",
        "loss.requires_grad = True\nloss.backward()\n",
        "loss = Variable(loss.data, requires_grad=True)\nloss.backward()\n",
        "total_loss = torch.as_tensor(value, requires_grad=True)\ntotal_loss.backward()\n",
    ],
    "special_tokens_twice": [
        "text = tokenizer.apply_chat_template(m, tokenize=False)\nids = tokenizer(text)['input_ids']\n",
        "text = tok.apply_chat_template(m, tokenize=False, add_generation_prompt=True)\nids = tok(text, return_tensors='pt')\n",
        "def render(r):\n    return {'text': tokenizer.apply_chat_template(r['m'], tokenize=False)}\ndef encode(r):\n    return tokenizer(r['text'])\n",
        "class C:\n    def run(self, m):\n        text = self.tokenizer.apply_chat_template(m, tokenize=False)\n        return self.tokenizer(text, return_tensors='pt')\n",
        "text = tokenizer.apply_chat_template(m, tokenize=False)\nids = tokenizer.encode(text)\n",
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "logsoftmax_twice": [
        "loss = F.nll_loss(F.log_softmax(x, dim=1), y)\nother = F.cross_entropy(z, y)\n",
        "loss = F.cross_entropy(model(x), y)\nlogp = F.log_softmax(model(x), -1)\n",
        "class Net(nn.Module):\n    def forward(self, x):\n        return F.log_softmax(self.head(x), dim=1)\nloss = F.nll_loss(Net()(x), y)\n",
    ],
    "log_of_raw": [
        "loss = -torch.log(torch.softmax(x, -1).clamp(min=1e-8)).mean()\n",
        "loss = -F.log_softmax(x, -1).mean()\n",
        "x = torch.log(1 + counts)\n",
    ],
    "no_eps": [
        "x = (x - x.mean()) / (x.std() + 1e-8)\n",
        "x = x / x.norm().clamp(min=1e-6)\n",
        "loss = (loss * mask).sum() / mask.sum().clamp_min(1)\n",
    ],
    "label_shift_twice": [
        LM + "out = model(ids, labels=ids)\n",
        LM + "logits = model(ids[:, :-1]).logits\nloss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())\n",
        LM + "def row(ids):\n    return {'input_ids': ids, 'labels': ids.clone()}\n",
    ],
    "in_place_on_leaf": [
        "with torch.no_grad():\n    model.fc.weight *= 0.5\n",
        "model.fc.weight.data *= 0.5\n",
        "@torch.no_grad()\ndef scale(m):\n    m.weight.mul_(0.5)\n",
    ],
    "preference_beta_zero": [
        "config = DPOConfig(beta=0.1)\n",
        "config = DPOConfig(output_dir='out')\n",
        "optimizer = AdamW(p, betas=(0.0, 0.9))\nconfig = DPOConfig(label_smoothing=0.0)\n",
    ],
    "loss_made_to_require_grad": [
        "x = torch.tensor([1.0], requires_grad=True)\nloss = f(x)\nloss.backward()\n",
        "loss = f(x)\nloss.requires_grad_(False)\n",
        "weight.requires_grad_(True)\nloss = f(weight)\nloss.backward()\n",
    ],
    "special_tokens_twice": [
        "text = tokenizer.apply_chat_template(m, tokenize=False)\nids = tokenizer(text, add_special_tokens=False)\n",
        "ids = tokenizer.apply_chat_template(m, tokenize=True)\n",
        "text = tokenizer.apply_chat_template(m, tokenize=False)\nprint(text)\nout = llm.generate(text)\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path, name, source):
    assert name in names(tmp_path, source)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path, name, source):
    assert name not in names(tmp_path, source)
