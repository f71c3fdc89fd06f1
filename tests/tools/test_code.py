"""Each hazard in code that has it and in sound code that looks like it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from traindoctor.agent.reading.code.project import detectors
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.code_tools import find_hazards, read_source

LOOP = """
for batch in loader:
    loss = model(**batch).loss
    {before}
    loss.backward()
    {after}
"""


def loop(before: str = "pass", after: str = "optimizer.step(); optimizer.zero_grad()") -> str:
    return LOOP.format(before=before, after=after)


def found(tmp_path: Path, source: str, **more: str) -> dict[str, list[int]]:
    (tmp_path / "train.py").write_text(textwrap.dedent(source))
    for name, text in more.items():
        (tmp_path / name.replace("__", ".")).write_text(textwrap.dedent(text))
    keys: dict[str, list[int]] = {}
    for e in find_hazards(Workspace([tmp_path])).evidence:
        assert e.text == (tmp_path / str(e.file)).read_text().split("\n")[(e.line or 0) - 1]
        keys.setdefault(e.key.removeprefix("code."), []).append(e.line or 0)
    return keys


DDP = "import torch.distributed as dist\ndist.init_process_group()\n"
HAZARDS = [
    (
        "penalty_subtracted",
        "loss = pg_loss - kl_div * self.kl_coef\nloss.backward()\n",
        "loss = pg_loss + kl_div * self.kl_coef\nloss = loss - entropy * coef\nper_token_loss = -(per_token_loss - beta * per_token_kl)\n"
        "rewards = scores - beta * kld\n",
    ),
    (
        "mask_inverted",
        "def build(batch):\n    observation_mask[row, start:end] = 1\n    loss_mask = response_mask * observation_mask\n",
        "def build(batch):\n    observation_mask[row, start:end] = 1\n    loss_mask = response_mask * (1 - observation_mask)\n    tool_mask[row] = 1\n    loss_mask = response_mask * tool_mask\n",
    ),
    (
        "mask_attention_only",
        "def penalty(batch, next_obs_ids):\n    mask = attention_mask[:, -response_length:]\n    kld = kld * mask\n",
        "def penalty(batch):\n    mask = attention_mask[:, -response_length:]\n    kld = kld * mask\n",
    ),
    (
        "unscaled_accumulation",
        "for step in range(9):\n    for micro in range(accumulation):\n        loss = model(batch())\n        loss.backward()\n    opt.step()\n    opt.zero_grad()\n",
        "for step in range(9):\n    for micro in range(accumulation):\n        loss = model(batch()) / accumulation\n        loss.backward()\n    opt.step()\n"
        "for step in range(9):\n    for micro in range(micro_steps):\n        loss = model(batch())\n        loss /= micro_steps\n        loss.backward()\n    opt.step()\n"
        "for epoch in range(epochs):\n    for x in loader:\n        loss = model(x)\n        loss.backward()\n        opt.step()\n",
    ),
    (
        "unscaled_accumulation",
        "def train(steps):\n    for n in range(cfg.grad_accum_steps):\n        scaler.scale(model(batch())).backward()\n    scaler.step(opt)\n    print(loss.item() * cfg.grad_accum_steps)\n",
        "def train(steps):\n    for n in range(cfg.grad_accum_steps):\n        scaler.scale(model(batch()) / cfg.grad_accum_steps).backward()\n    scaler.step(opt)\n",
    ),
    (
        "prepared_twice",
        "model, optimizer = accelerator.prepare(model, optimizer)\nscheduler = accelerator.prepare(scheduler)\n"
        "optimizer, scheduler = accelerator.prepare(optimizer, scheduler)\n",
        "if args.deepspeed:\n    model, scheduler = accelerator.prepare(model, scheduler)\nelse:\n    model = accelerator.prepare(model)\n",
    ),
    (
        "prepared_twice",
        "model = accelerator.prepare(model)\nmodel = DDP(model)\n",
        "model = accelerator.prepare(model)\nloader = accelerator.prepare(loader)\nloader = make()\nloader = accelerator.prepare(loader)\n",
    ),
    ("graph_kept", loop(after="total += loss"), loop(after="total += loss.item()")),
    ("graph_kept", loop(after="losses.append(loss)"), loop(after="losses.append(loss.detach())")),
    ("graph_kept", loop(after="self.history.append(loss / n)"), loop(before="loss += aux")),
    ("retain_graph", "for x in y:\n    loss.backward(retain_graph=True)\n", loop()),
    ("missing_zero_grad", loop(after="optimizer.step()"), loop()),
    ("item_in_loop", loop(before="n = [p.grad.norm().item() for p in model.parameters()]"), loop(after="x = loss.item()")),
    ("item_in_loop", loop(before="torch.cuda.synchronize()"), loop(before="if i % 100 == 0: torch.cuda.synchronize()")),
    ("item_before_backward", loop(before="v = loss.item()"), loop(before="if i % 50 == 0: v = loss.item()", after="x = loss.item()")),
    ("scheduler_misplaced", loop(before="scheduler.step()"), loop(after="optimizer.step(); optimizer.zero_grad(); scheduler.step()")),
    (
        "scheduler_misplaced",
        loop(after="if i % 4 == 0: optimizer.step(); optimizer.zero_grad()\n    scheduler.step()"),
        loop(after="if i % 4 == 0: optimizer.step(); scheduler.step(); optimizer.zero_grad()"),
    ),
    (
        "unscaled_accumulation",
        loop(after="if (i + 1) % accumulation_steps == 0: optimizer.step(); optimizer.zero_grad()"),
        loop("loss = loss / accumulation_steps", "if (i + 1) % accumulation_steps == 0: optimizer.step(); optimizer.zero_grad()"),
    ),
    (
        "scheduler_misplaced",
        "for b in l:\n    loss.backward()\n    if is_accumulation_step:\n        pass\n    else:\n        opt.step()\n        opt.zero_grad()\n"
        "    lr_scheduler.step()\n",
        "for b in l:\n    loss.backward()\n    opt.step()\n    opt.zero_grad()\n    lr_scheduler.step()\n",
    ),
    (
        "zero_grad_in_accumulation",
        "with accelerator.accumulate(m):\n    optimizer.zero_grad()\n    accelerator.backward(loss)\n    optimizer.step()\n",
        "with accelerator.accumulate(m):\n    accelerator.backward(loss)\n    optimizer.step()\n    optimizer.zero_grad()\n",
    ),
    (
        "zero_grad_in_accumulation",
        loop(before="optimizer.zero_grad()", after="if i % accum_steps == 0: optimizer.step()"),
        loop(after="if i % accum_steps == 0: optimizer.step(); optimizer.zero_grad()"),
    ),
    (
        "backward_in_gate",
        "for i, b in enumerate(l):\n    loss = f(b) / accum\n    if i % accum == 0:\n        loss.backward()\n        optimizer.step()\n",
        loop("loss = loss / accum", "if i % accum == 0: optimizer.step(); optimizer.zero_grad()"),
    ),
    (
        "accumulation_not_entered",
        "accelerator = Accelerator(gradient_accumulation_steps=4)\n" + loop(),
        "accelerator = Accelerator(gradient_accumulation_steps=4)\nfor b in l:\n    with accelerator.accumulate(m):\n        loss.backward()\n        optimizer.step()\n",
    ),
    ("missing_optimizer_step", loop(after="lr_scheduler.step(); optimizer.zero_grad()"), loop()),
    ("ratio_of_itself", "r = torch.exp(logps - logps.detach())\n", "r = torch.exp(logps - old_logps.detach())\n"),
    ("cycle_keeps_batches", "for b in itertools.cycle(train_loader):\n    pass\n", "for c in itertools.cycle(colors):\n    pass\n"),
    (
        "unbounded_cache",
        "class D:\n    @lru_cache(maxsize=None)\n    def __getitem__(self, i):\n        return f(i)\n",
        "class D:\n    @lru_cache(maxsize=64)\n    def __getitem__(self, i):\n        return f(i)\n",
    ),
    (
        "collective_under_rank",
        "model = DDP(model)\nif rank == 0:\n    evaluate(model, loader)\n",
        "model = DDP(model)\nif rank == 0:\n    evaluate(model.module, loader)\n",
    ),
    (
        "clip_before_unscale",
        "scaler.scale(loss).backward()\nclip_grad_norm_(p, 1.0)\nscaler.step(optimizer)\nscaler.update()\n",
        "scaler.scale(loss).backward()\nscaler.unscale_(optimizer)\nclip_grad_norm_(p, 1.0)\nscaler.step(optimizer)\n",
    ),
    ("step_without_scaler", "scaler.scale(loss).backward()\noptimizer.step()\n", "scaler.scale(loss).backward()\nscaler.step(optimizer)\n"),
    ("half_weights_trained", "model.half()\n" + loop(), "model.half()\nmodel.generate(x)\n"),
    (
        "eval_without_no_grad",
        "def evaluate(model):\n    model.eval()\n    for b in loader:\n        out = model(b)\n",
        "def evaluate(model):\n    model.eval()\n    with torch.no_grad():\n        for b in loader:\n            out = model(b)\n",
    ),
    (
        "eval_without_no_grad",
        "def validate(self):\n    for b in loader:\n        out = self.model(b)\n",
        "@torch.inference_mode()\ndef validate(self):\n    for b in loader:\n        out = self.model(b)\n",
    ),
    ("softmax_before_cross_entropy", "loss = F.cross_entropy(F.softmax(x, -1), y)\n", "loss = F.cross_entropy(x, y)\n"),
    (
        "softmax_before_cross_entropy",
        "criterion = nn.CrossEntropyLoss()\nprobs = torch.softmax(logits, 1)\nloss = criterion(probs, y)\n",
        "criterion = nn.CrossEntropyLoss()\nprobs = torch.softmax(logits, 1)\nloss = criterion(logits, y)\n",
    ),
    ("logsoftmax_twice", "l = F.log_softmax(x, 1)\nloss = F.cross_entropy(l, y)\n", "l = F.log_softmax(x, 1)\nloss = F.nll_loss(l, y)\n"),
    ("log_of_raw", "e = torch.log(torch.softmax(x, -1))\n", "e = torch.log(torch.softmax(x, -1).clamp(min=1e-9))\n"),
    ("log_of_raw", "e = (p * probs.log()).sum()\n", "e = torch.log_softmax(x, -1)\nmath.log(prob)\n"),
    ("no_eps", "adv = (r - r.mean()) / r.std()\n", "adv = (r - r.mean()) / (r.std() + 1e-6)\n"),
    ("no_eps", "loss = (l * mask).sum() / mask.sum()\n", "loss = (l * mask).sum() / mask.sum().clamp(min=1)\n"),
    (
        "label_shift_twice",
        "labels = ids[:, 1:]\nx = ids[:, :-1]\nloss = model(input_ids=x, labels=labels).loss\n",
        "logits = model(input_ids=ids[:, :-1]).logits\nloss = F.cross_entropy(logits, ids[:, 1:])\n",
    ),
    (
        "optimizer_before_wrap",
        "opt = torch.optim.AdamW(model.parameters())\nmodel = FSDP(model)\n",
        "model = FSDP(model)\nopt = torch.optim.AdamW(model.parameters())\n",
    ),
    (
        "params_frozen",
        "for p in model.parameters():\n    p.requires_grad = False\nopt = optim.Adam(model.parameters())\n",
        "for p in model.parameters():\n    p.requires_grad = False\nmodel = get_peft_model(model, c)\nopt = optim.Adam(model.parameters())\n",
    ),
    ("params_frozen", "model.requires_grad_(False)\ntrainer = Trainer(model)\n", "ref_model.requires_grad_(False)\ntrainer = Trainer(model)\n"),
    (
        "tensor_view_shared",
        "for e in range(9):\n    train()\n    if acc > best:\n        best_state = model.state_dict()\n",
        "for e in range(9):\n    train()\n    if acc > best:\n        best_state = copy.deepcopy(model.state_dict())\n",
    ),
    (
        "ddp_bypassed",
        "model = DDP(net)\nfor b in loader:\n    loss = model.module(b)\n    loss.backward()\n",
        "model = DDP(net)\nfor b in loader:\n    with torch.no_grad():\n        old = model.module(b)\n    model(b, old).backward()\n",
    ),
    (
        "ddp_bypassed",
        "self.net = DistributedDataParallel(self.net)\nfor b in loader:\n    self.net.module.forward(b).backward()\n",
        "self.net = DistributedDataParallel(self.net)\nfor b in loader:\n    self.net(b).backward()\nself.net.module(b)\n",
    ),
    ("loss_made_to_require_grad", "loss = f(x)\nloss.requires_grad_(True)\nloss.backward()\n", "x.requires_grad_()\nf(x).backward()\n"),
    (
        "loss_made_to_require_grad",
        "total_loss = torch.tensor(sum(parts), requires_grad=True)\ntotal_loss.backward()\n",
        "loss_weight = torch.tensor(1.0, requires_grad=True)\n(loss_weight * f(x)).backward()\n",
    ),
    ("loss_made_to_require_grad", "loss.requires_grad = True\nloss.backward()\n", "weight.requires_grad = True\nloss.backward()\n"),
    ("tensor_view_shared", "ref_model = model\n", "ref_model = copy.deepcopy(model)\n"),
    (
        "pad_is_eos",
        "tokenizer.pad_token = tokenizer.eos_token\nc = DataCollatorForLanguageModeling(tokenizer, mlm=False)\n",
        "tokenizer.pad_token = tokenizer.eos_token\nmodel.generate(x)\n",
    ),
    (
        "eval_logits_kept",
        "t = Trainer(model, compute_metrics=f)\n",
        "t = Trainer(model, compute_metrics=f, preprocess_logits_for_metrics=g)\n",
    ),
    ("default_device", DDP + "device = torch.device('cuda:0')\n", "device = torch.device('cuda:0')\n"),
    ("default_device", DDP + "torch.cuda.set_device(0)\n", DDP + "torch.cuda.set_device(local_rank)\n"),
    ("collective_under_rank", "if dist.get_rank() == 0:\n    save()\n    dist.barrier()\n", "if rank == 0:\n    save()\ndist.barrier()\n"),
    (
        "collective_under_rank",
        "def f():\n    if rank != 0:\n        return\n    x = torch.distributed.all_reduce(t)\n",
        "if local_rank not in [-1, 0]:\n    torch.distributed.barrier()\nload()\nif local_rank == 0:\n    torch.distributed.barrier()\n",
    ),
    (
        "collective_under_rank",
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()\n",
        "if rank == 0:\n    dist.broadcast(a, 0)\nelse:\n    dist.broadcast(b, 0)\n",
    ),
    (
        "sampler_no_set_epoch",
        "s = DistributedSampler(d)\nfor epoch in range(3):\n    pass\n",
        "s = DistributedSampler(d)\nfor epoch in range(3):\n    s.set_epoch(epoch)\n",
    ),
    ("shuffle_with_sampler", "DataLoader(d, sampler=s, shuffle=True)\n", "DataLoader(d, sampler=s)\n"),
    ("no_distributed_sampler", DDP + "m = DDP(m)\nl = DataLoader(d)\n", DDP + "m = DDP(m)\nl = DataLoader(d, sampler=DistributedSampler(d))\n"),
    (
        "scheduler_not_saved",
        "scheduler = get_scheduler(o)\ntorch.save({'model': m.state_dict(), 'optimizer': o.state_dict(), 'epoch': e}, p)\n",
        "scheduler = get_scheduler(o)\nck = {'model': m.state_dict(), 'optimizer': o.state_dict(), 'epoch': e}\n"
        "ck['scheduler'] = scheduler.state_dict()\ntorch.save(ck, p)\n",
    ),
    (
        "optimizer_not_saved",
        "optimizer = AdamW(p)\ntorch.save({'model': m.state_dict(), 'epoch': e}, f)\n",
        "optimizer = AdamW(p)\ntorch.save({'model': m.state_dict()}, f)\n",
    ),
    (
        "strict_false_load",
        "a, b = m.load_state_dict(s, strict=False)\nprint(f'{len(a)} missing, {len(b)} unexpected')\n",
        "a, b = m.load_state_dict(s, strict=False)\nif len(a):\n    raise ValueError\n",
    ),
    ("strict_false_load", "m.load_state_dict(s, strict=False)\n", "missing, odd = m.load_state_dict(s, strict=False)\nprint(missing)\n"),
    (
        "num_workers_fork_threads",
        "import polars as pl\ndf = pl.read_parquet(f)\nl = DataLoader(d, num_workers=4)\n",
        "import polars as pl\ndf = pl.read_parquet(f)\nl = DataLoader(d, num_workers=4, multiprocessing_context='spawn')\n",
    ),
    (
        "open_in_getitem",
        "class D:\n    def __getitem__(self, i):\n        return h5py.File(self.p)[i]\n",
        "class D:\n    def __init__(self):\n        self.f = h5py.File(self.p)\n",
    ),
    (
        "data_errors_swallowed",
        "class D:\n    def __getitem__(self, i):\n        try:\n            return f(i)\n        except Exception:\n            return None\n",
        "class D:\n    def __getitem__(self, i):\n        try:\n            return f(i)\n        except KeyError:\n            return None\n",
    ),
    ("stop_string_generic", "g = gen(p, stop=['Question', '</s>'])\n", "g = gen(p, stop=['Question:', '</s>', '\\n\\n'])\n"),
    (
        "unmerge_before_load",
        "def f():\n    m.merge_adapter()\n    s = m.state_dict()\n    m.unmerge_adapter()\n    llm.load_weights(s.items())\n",
        "def f():\n    m.merge_adapter()\n    s = m.state_dict()\n    llm.load_weights(s.items())\n    m.unmerge_adapter()\n",
    ),
    (
        "request_order",
        "def f():\n    post(u + '/sleep?level=1')\n    post(f'{u}/update_weights')\n",
        "def f():\n    post(u + '/sleep?level=1')\n    post(f'{u}/wake_up')\n    post(f'{u}/update_weights')\n",
    ),
    (
        "request_order",
        "def f(llm):\n    llm.sleep()\n    llm.load_weights(w)\n",
        "def f(llm):\n    time.sleep(3)\n    llm.load_weights(w)\n",
    ),
    (
        "reward_errors_swallowed",
        "def reward_fn(x):\n    try:\n        return score(x)\n    except:\n        return 0.0\n",
        "def reward_fn(x):\n    try:\n        return score(x)\n    except Exception:\n        log(x)\n        raise\n",
    ),
    ("compiled_counter", "m = torch.compile(m)\nclass C:\n    def forward(self):\n        self.size += 1\n", "class C:\n    def forward(self):\n        self.size += 1\n"),
    ("lora_target", 'peft = LoraConfig(r=8, target_modules=["q_proj"])\n', 'peft = LoraConfig(r=8)\n'),
    ("device_transfer_in_loop", '\nfor batch in loader:\n    loss = model(**batch).loss\n    pass\n    loss.backward()\n    preds.append(logits.cpu())\n', '\nfor batch in loader:\n    loss = model(**batch).loss\n    pass\n    loss.backward()\n    preds.append(logits.detach())\n'),
    ("loader_workers_zero", 'loader = DataLoader(ds, batch_size=8, num_workers=0)\n', 'loader = DataLoader(ds, batch_size=8, num_workers=4)\n'),
    ("requires_grad_false", 'for p in model.encoder.parameters():\n    p.requires_grad = False\n', 'for p in model.encoder.parameters():\n    p.requires_grad = True\n'),
    ("regex_extraction_last_number", 'def extract(text):\n    numbers = re.findall(r"\\d+", text)\n    return numbers[-1]\n', 'def extract(text):\n    return re.search(r"answer is (\\d+)", text)[1]\n'),
    ("seed_per_rank", 'rank = dist.get_rank()\ntorch.manual_seed(42 + rank)\n', 'rank = dist.get_rank()\ntorch.manual_seed(42)\n'),
    ("weights_only_load", 'state = torch.load("a.pt", weights_only=False)\n', 'state = load_file("a.safetensors")\n'),
    ("reentrant_checkpoint", 'out = checkpoint(block, x, use_reentrant=True)\n', 'out = checkpoint(block, x, use_reentrant=False)\n'),
    ("eval_mode_missing", 'def evaluate(model, loader):\n    with torch.no_grad():\n        for b in loader:\n            out = model(b)\n', 'def evaluate(model, loader):\n    model.eval()\n    with torch.no_grad():\n        for b in loader:\n            out = model(b)\n'),
    ("map_location_missing", 'import torch.distributed as dist\ndist.init_process_group()\nstate = torch.load("a.pt")\n', 'import torch.distributed as dist\ndist.init_process_group()\nstate = torch.load("a.pt", map_location="cpu")\n'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "bad", "good"), HAZARDS, ids=[f"{h[0]}-{n}" for n, h in enumerate(HAZARDS)])
def test_hazard(tmp_path, name, bad, good) -> None:
    assert name in found(tmp_path, bad)
    assert name not in found(tmp_path, good)


def test_most_detectors_have_a_case_here() -> None:
    known = {name for d in detectors() for name in d.detects}  # pyright: ignore
    assert {h[0] for h in HAZARDS} <= known
    assert len({h[0] for h in HAZARDS}) >= 0.6 * len(known)


MASKS = """
class T:
    def loss(self, model, batch):
        if self.cfg.fused:
            return self.fused_loss(model, batch)
        return self.plain_loss(model, batch)

    def plain_loss(self, model, batch):
        mask = batch["response_mask"]
        mask = mask * batch["turn_mask"]
        return pg_loss(model(batch), mask)

    def fused_loss(self, model, batch):
        {extra}
        return fused_pg_loss(
            model.head,
            mask={mask},
        )
"""


def test_a_mask_that_the_sibling_forgets(tmp_path) -> None:
    launch = 'cfg = Config(\n    lr=1e-6,\n    fused=True)\nout["turn_mask"].append(m)\n'
    bad = MASKS.format(extra="pass", mask='batch["response_mask"]')
    keys = found(tmp_path, bad, run__py=launch)
    assert keys["mask_not_passed"] == [10, 17]
    assert keys["sibling_switch"] == [3, 4] or sorted(keys["sibling_switch"]) == [3, 4]
    assert keys["mask_produced"] == [4]


def test_a_mask_that_the_sibling_takes_too(tmp_path) -> None:
    good = MASKS.format(extra='m = batch["response_mask"] * batch["turn_mask"]', mask="m")
    assert "mask_not_passed" not in found(tmp_path, good)


def test_a_launch_script_tells_that_there_are_several_processes(tmp_path) -> None:
    source = 'parser.add_argument("--device", default="cuda:1")\n'
    assert "default_device" not in found(tmp_path, source)
    assert "default_device" in found(tmp_path, source, run__sh="torchrun --nproc_per_node 4 train.py\n")


def test_sound_training_code_is_clean(tmp_path) -> None:
    source = """
    import torch
    def train(model, loader, optimizer, scheduler):
        model.train()
        for step, batch in enumerate(loader):
            loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            if step % 10 == 0:
                print(step, loss.item())
    @torch.no_grad()
    def evaluate(model, loader):
        model.eval()
        return sum(model(**b).loss.item() for b in loader)
    """
    assert found(tmp_path, source) == {}


def test_no_code(tmp_path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2\n")
    assert find_hazards(Workspace([tmp_path])).outcome == "not_applicable"


def test_many_files_are_capped_and_told(tmp_path) -> None:
    for n in range(230):
        (tmp_path / f"m{n:03}.py").write_text("x = 1\n")
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "lib.py").write_text("loss.backward(retain_graph=True)\n")
    assert "30 left out" in find_hazards(Workspace([tmp_path])).summary


def test_reading_around_a_line(tmp_path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").write_text("".join(f"x{n} = {n}\n" for n in range(1, 200)))
    ws = Workspace([tmp_path])
    result = read_source(ws, file="/home/someone/job/src/model.py", start=10, lines=3)
    assert "x11 = 11" in result.text
    assert result.more == {"tool": "read_source", "file": "src/model.py", "start": 13}


def test_the_line_a_traceback_names(tmp_path) -> None:
    log = 'Traceback (most recent call last):\n  File "/job/train.py", line 2, in main\n    boom(x)\nValueError: no\n'
    keys = found(tmp_path, "x = 1\nboom(x)\n", train__log=log)
    assert keys == {"failing_line": [2]}
