"""Hazards of the training loop: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import pytest

from tests.tools.test_hazard_spellings import names

GPU = "model = Net().to('cuda')\n"
TAKE = "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"

FAULTS: dict[str, list[str]] = {
    "missing_zero_grad": [
        "for x, y in loader:\n    loss = f(model(x), y)\n    loss.backward()\n    optimizer.step()\n",
        "def train(model, loader, opt):\n    for b in loader:\n        model(b).mean().backward()\n        opt.step()\n",
        "for b in loader:\n    loss = model(b)\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
        "step = 0\nwhile step < 100:\n    loss = model(next(it))\n    loss.backward()\n    optim.step()\n    step += 1\n",
        "class Trainer:\n    def epoch(self):\n        for b in self.loader:\n            loss = self.model(b)\n            loss.backward()\n            self.optimizer.step()\n",
    ],
    "scheduler_misplaced": [
        "for b in loader:\n    loss = model(b)\n    loss.backward()\n    scheduler.step()\n    optimizer.step()\n    optimizer.zero_grad()\n",
        "for b in loader:\n    optimizer.zero_grad()\n    lr_scheduler.step()\n    model(b).backward()\n    optimizer.step()\n",
        "for i, b in enumerate(loader):\n    loss = model(b) / accum\n    loss.backward()\n    if (i + 1) % accum == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n    scheduler.step()\n",
        "def epoch(self):\n    for i, b in enumerate(self.loader):\n        (self.model(b) / 4).backward()\n        if i % 4 == 3:\n            self.opt.step()\n            self.opt.zero_grad()\n        self.sched.step()\n",
        "for b in loader:\n    loss = model(b)\n    loss.backward()\n    self.scheduler.step()\n    scaler.step(optimizer)\n    scaler.update()\n    optimizer.zero_grad()\n",
    ],
    "eval_without_no_grad": [
        "def evaluate(model, loader):\n    model.eval()\n    total = 0\n    for x, y in loader:\n        total += f(model(x), y).item()\n    return total\n",
        "def validate(self):\n    self.model.eval()\n    for b in self.val_loader:\n        out = self.model(b)\n",
        "def valid_epoch(net, loader):\n    net.eval()\n    for i, (x, y) in enumerate(loader):\n        hits += (net(x).argmax(1) == y).sum()\n",
        "def test(model, device, test_loader):\n    model.eval()\n    for x, y in test_loader:\n        out = model(x.to(device))\n        correct += out.argmax(1).eq(y).sum().item()\n",
        "def run_validation(model, loader):\n    model.eval()\n    losses = []\n    for b in loader:\n        losses.append(model(b).item())\n    return sum(losses)\n",
    ],
    "eval_mode_missing": [
        "@torch.no_grad()\ndef evaluate(model, loader):\n    for x, y in loader:\n        total += f(model(x), y).item()\n",
        "def validate(self):\n    with torch.no_grad():\n        for b in self.val_loader:\n            out = self.model(b)\n",
        "def test(model, test_loader):\n    with torch.inference_mode():\n        for x, y in test_loader:\n            correct += model(x).argmax(1).eq(y).sum().item()\n",
        "@torch.inference_mode()\ndef predict(net, loader):\n    return [net(b) for b in loader]\n",
        "def run_validation(model, loader):\n    with torch.no_grad():\n        for b in loader:\n            losses.append(model(b).item())\n",
    ],
    "train_mode_missing": [
        "for epoch in range(9):\n    for b in loader:\n        loss = model(b)\n" + TAKE.replace("    ", "        ") + "    model.eval()\n    check(model)\n",
        "def evaluate(model):\n    model.eval()\n    return score(model)\nfor epoch in range(9):\n    for b in loader:\n        loss = model(b)\n" + TAKE.replace("    ", "        ") + "    evaluate(model)\n",
        "class T:\n    def validate(self):\n        self.model.eval()\n        return score(self.model)\n    def fit(self):\n        for e in range(9):\n            for b in self.loader:\n                loss = self.model(b)\n                loss.backward()\n                self.optimizer.step()\n                self.optimizer.zero_grad()\n            self.validate()\n",
        "step = 0\nfor b in loader:\n    loss = net(b)\n" + TAKE + "    step += 1\n    if step % 100 == 0:\n        net.eval()\n        print(score(net))\n",
        "for b in loader:\n    loss = model(b)\n" + TAKE + "    if step % 50 == 0:\n        model.train(False)\n        print(score(model))\n    step += 1\n",
    ],
    "retain_graph": [
        "for b in loader:\n    loss = model(b)\n    loss.backward(retain_graph=True)\n    optimizer.step()\n",
        "def train():\n    while True:\n        d = disc(fake)\n        d.backward(retain_graph=True)\n        opt.step()\n",
        "for b in loader:\n    torch.autograd.backward(model(b), retain_graph=True)\n    optimizer.step()\n",
        "for b in loader:\n    accelerator.backward(model(b), retain_graph=True)\n    optimizer.step()\n",
        "class M(LightningModule):\n    def training_step(self, batch, i):\n        for part in self.parts:\n            self.manual_backward(part(batch), retain_graph=True)\n",
    ],
    "step_without_scaler": [
        GPU + "scaler = GradScaler()\nfor b in loader:\n    optimizer.zero_grad()\n    scaler.scale(model(b)).backward()\n    optimizer.step()\n",
        GPU + "scaler = torch.cuda.amp.GradScaler()\nfor b in loader:\n    loss = model(b)\n    scaler.scale(loss).backward()\n    scaler.unscale_(opt)\n    opt.step()\n    opt.zero_grad()\n",
        GPU + "class T:\n    def train_step(self, b):\n        loss = self.model(b)\n        self.scaler.scale(loss).backward()\n        self.optimizer.step()\n        self.scaler.update()\n",
        GPU + "grad_scaler = torch.amp.GradScaler('cuda')\nwhile True:\n    loss = model(next(it))\n    grad_scaler.scale(loss).backward()\n    optim.step()\n",
        GPU + "def step(model, b, opt, scaler):\n    loss = model(b)\n    loss = scaler.scale(loss)\n    loss.backward()\n    opt.step()\n    scaler.update()\n",
    ],
    "backward_in_gate": [
        "for i, b in enumerate(loader):\n    loss = model(b) / accum_steps\n    if (i + 1) % accum_steps == 0:\n        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "for i, b in enumerate(loader):\n    loss = model(b) / args.gradient_accumulation\n    if i % args.gradient_accumulation == 0:\n        loss.backward()\n        opt.step()\n        opt.zero_grad()\n",
        "for i, b in enumerate(loader):\n    update = (i + 1) % grad_accum == 0\n    loss = model(b) / grad_accum\n    if update:\n        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n",
        "for i, b in enumerate(loader):\n    loss = model(b) / accumulation\n    if (i + 1) % accumulation != 0:\n        continue\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n",
        "class T:\n    def epoch(self):\n        for i, b in enumerate(self.loader):\n            loss = self.model(b) / self.accum\n            if (i + 1) % self.accum == 0:\n                loss.backward()\n                self.optimizer.step()\n                self.optimizer.zero_grad()\n",
    ],
    "zero_grad_in_accumulation": [
        "for i, b in enumerate(loader):\n    optimizer.zero_grad()\n    loss = model(b) / accum\n    loss.backward()\n    if (i + 1) % accum == 0:\n        optimizer.step()\n",
        "for i, b in enumerate(loader):\n    (model(b) / grad_accum).backward()\n    if i % grad_accum == grad_accum - 1:\n        opt.step()\n    opt.zero_grad()\n",
        "for i, b in enumerate(loader):\n    model.zero_grad()\n    loss = model(b) / args.accum\n    loss.backward()\n    if (i + 1) % args.accum == 0:\n        optimizer.step()\n",
        "for i, b in enumerate(loader):\n    loss = model(b) / accumulate\n    optimizer.zero_grad(set_to_none=True)\n    loss.backward()\n    if (i + 1) % accum_steps != 0:\n        continue\n    optimizer.step()\n",
        "accelerator = Accelerator(gradient_accumulation_steps=4)\nfor b in loader:\n    with accelerator.accumulate(model):\n        loss = model(b)\n        optimizer.zero_grad()\n        accelerator.backward(loss)\n        optimizer.step()\n",
    ],
    "accumulation_not_entered": [
        "acc = Accelerator(gradient_accumulation_steps=8)\nfor b in loader:\n    acc.backward(model(b))\n    optimizer.step()\n    optimizer.zero_grad()\n",
        "accelerator = accelerate.Accelerator(mixed_precision='bf16', gradient_accumulation_steps=args.n)\nfor b in loader:\n    loss = model(b)\n    accelerator.backward(loss)\n    optimizer.step()\n",
        "class T:\n    def __init__(self):\n        self.accelerator = Accelerator(gradient_accumulation_steps=4)\n    def fit(self):\n        for b in self.loader:\n            self.accelerator.backward(self.model(b))\n            self.optimizer.step()\n            self.optimizer.zero_grad()\n",
        "accelerator = Accelerator(gradient_accumulation_steps=4)\nwhile step < 10:\n    accelerator.backward(model(next(it)))\n    opt.step()\n    step += 1\n",
        "accelerator = Accelerator(gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=4))\nfor b in loader:\n    accelerator.backward(model(b))\n    optimizer.step()\n    optimizer.zero_grad()\n",
    ],
    "ratio_of_itself": [
        "ratio = torch.exp(logp - logp.detach())\nloss = -(ratio * adv).mean()\n",
        "old_logp = logp.detach()\nratio = (logp - old_logp).exp()\nloss = -(ratio * adv).mean()\n",
        "ratio = torch.exp(log_probs - log_probs.detach())\nsurr = torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv)\n",
        "class T:\n    def loss(self, b):\n        log_ratio = self.logps - self.logps.detach()\n        return -(log_ratio.exp().clamp(0.8, 1.2) * b.adv).mean()\n",
        "old_log_prob = log_prob.clone().detach()\nr = torch.exp(log_prob - old_log_prob)\nloss = -torch.min(r * a, r.clamp(0.9, 1.1) * a).mean()\n",
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "missing_zero_grad": [
        "for b in loader:\n    model.zero_grad()\n    loss = model(b)\n    loss.backward()\n    optimizer.step()\n",
        "for b in loader:\n    for p in model.parameters():\n        p.grad = None\n    loss = model(b)\n    loss.backward()\n    optimizer.step()\n",
        "engine, _, _, _ = deepspeed.initialize(model=model)\nfor b in loader:\n    loss = engine(b)\n    engine.backward(loss)\n    engine.step()\n",
    ],
    "scheduler_misplaced": [
        "for b in loader:\n    loss = model(b)\n    loss.backward()\n    optimizer.step()\n    scheduler.step()\n    optimizer.zero_grad()\n",
        "for epoch in range(9):\n    for b in loader:\n        loss = model(b)\n        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n    scheduler.step()\n",
        "for i, b in enumerate(loader):\n    (model(b) / 4).backward()\n    if i % 4 == 3:\n        optimizer.step()\n        scheduler.step()\n        optimizer.zero_grad()\n",
    ],
    "eval_without_no_grad": [
        "@torch.no_grad()\ndef evaluate(model, loader):\n    model.eval()\n    for x, y in loader:\n        total += f(model(x), y).item()\n",
        "def evaluate(model, loader):\n    model.eval()\n    for x, y in loader:\n        total += f(model(x), y).item()\nwith torch.no_grad():\n    evaluate(model, loader)\n",
        "def evaluate(model, loader):\n    torch.set_grad_enabled(False)\n    for x in loader:\n        model(x)\n    torch.set_grad_enabled(True)\n",
    ],
    "eval_mode_missing": [
        "def evaluate(model, loader):\n    model.eval()\n    with torch.no_grad():\n        for x in loader:\n            model(x)\n    model.train()\n",
        "def evaluate(model, loader):\n    model.train(False)\n    with torch.no_grad():\n        for x in loader:\n            model(x)\n",
        "def evaluate_policy(policy, env):\n    with torch.no_grad():\n        for _ in range(9):\n            env.step(policy.act(env.state))\n",
    ],
    "train_mode_missing": [
        "for epoch in range(9):\n    model.train()\n    for b in loader:\n        loss = model(b)\n" + TAKE.replace("    ", "        ") + "    model.eval()\n    check(model)\n",
        "for b in loader:\n    loss = model(b)\n" + TAKE + "model.eval()\ncheck(model)\n",
        "for b in loader:\n    loss = model(b, teacher(b))\n" + TAKE + "    teacher.eval()\n",
    ],
    "retain_graph": [
        "for b in loader:\n    loss = model(b)\n    loss.backward(retain_graph=False)\n    optimizer.step()\n",
        "g, = torch.autograd.grad(y, x, retain_graph=True)\n",
        "for b in loader:\n    loss = model(b)\n    loss.backward(create_graph=False)\n    optimizer.step()\n",
    ],
    "step_without_scaler": [
        GPU + "scaler = GradScaler()\nfor b in loader:\n    scaler.scale(model(b)).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
        GPU + "scaler = StandardScaler()\nx = scaler.fit_transform(x)\nfor b in loader:\n    model(b).backward()\n    optimizer.step()\n",
        GPU + "if amp:\n    scaler.scale(loss).backward()\n    scaler.step(opt)\nelse:\n    loss.backward()\n    opt.step()\n",
    ],
    "backward_in_gate": [
        "for i, b in enumerate(loader):\n    loss = model(b) / accum\n    loss.backward()\n    if (i + 1) % accum == 0:\n        optimizer.step()\n        optimizer.zero_grad()\n",
        "for i, b in enumerate(loader):\n    pool.append(model(b))\n    if (i + 1) % accum == 0:\n        loss = sum(pool) / accum\n        loss.backward()\n        optimizer.step()\n        optimizer.zero_grad()\n        pool = []\n",
        "for i, b in enumerate(loader):\n    loss = model(b)\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n    if (i + 1) % accum == 0:\n        print(loss)\n",
    ],
    "zero_grad_in_accumulation": [
        "for i, b in enumerate(loader):\n    if i % accum == 0:\n        optimizer.zero_grad()\n    (model(b) / accum).backward()\n    if (i + 1) % accum == 0:\n        optimizer.step()\n",
        "for b in loader:\n    optimizer.zero_grad()\n    for m in range(accum):\n        (model(part(b, m)) / accum).backward()\n    optimizer.step()\n",
        "accelerator = Accelerator(gradient_accumulation_steps=4)\nfor b in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(b))\n        optimizer.step()\n        optimizer.zero_grad()\n",
    ],
    "accumulation_not_entered": [
        "accelerator = Accelerator(gradient_accumulation_steps=4)\nfor b in loader:\n    with accelerator.accumulate(model):\n        accelerator.backward(model(b))\n        optimizer.step()\n",
        "accelerator = Accelerator()\nfor b in loader:\n    accelerator.backward(model(b))\n    optimizer.step()\n",
        "accelerator = Accelerator(gradient_accumulation_steps=1)\nfor b in loader:\n    accelerator.backward(model(b))\n    optimizer.step()\n",
    ],
    "ratio_of_itself": [
        "ratio = torch.exp(logp - batch.logp.detach())\n",
        "with torch.no_grad():\n    old_logp = model(b)\nlogp = model(b)\nratio = torch.exp(logp - old_logp)\n",
        "for epoch in range(4):\n    logp = policy(b)\n    ratio = torch.exp(logp - old.logp.detach())\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path, name, source):
    assert name in names(tmp_path, source)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path, name, source):
    assert name not in names(tmp_path, source)
