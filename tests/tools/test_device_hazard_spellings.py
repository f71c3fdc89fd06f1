"""Hazards of devices, processes and what is kept: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import pytest

from tests.tools.test_hazard_spellings import MANY, names

GPU = "device = torch.device('cuda')\nmodel = Net().to(device)\n"
STEP = "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
LABELS = "rows = tokenizer(texts, padding=True, return_tensors='pt')\n"
COMPLETION = "def reward_format(text):\n    "

FAULTS: dict[str, list[str]] = {
    "item_before_backward": [
        GPU + "for b in loader:\n    loss = model(b)\n    total += loss.item()\n" + STEP,
        GPU + "for b in loader:\n    loss = model(b)\n    print(f'{loss.item():.3f}')\n" + STEP,
        GPU + "for b in loader:\n    loss = model(b)\n    bar.set_postfix(loss=loss.item())\n" + STEP,
        GPU + "for b in loader:\n    loss = model(b)\n    value = loss.detach().cpu().item()\n" + STEP,
        GPU + "for b in loader:\n    loss = model(b)\n    value = float(loss)\n" + STEP,
    ],
    "device_transfer_in_loop": [
        GPU + "for b in loader:\n    out = model(b)\n    loss = f(out)\n" + STEP + "    kept.append(out.detach().cpu())\n",
        GPU + "for b in loader:\n    out = model(b)\n    loss = f(out)\n" + STEP + "    acc = (out.detach().cpu().numpy() > 0).mean()\n",
        GPU + "def train():\n    for b in loader:\n        loss = model(b)\n        loss.backward()\n        opt.step()\n        losses.append(loss.cpu().detach())\n",
        GPU + "for b in loader:\n    out = model(b)\n    loss = f(out)\n" + STEP + "    kept.append(out.detach().to('cpu'))\n",
        GPU + "for b in loader:\n    out = model(b)\n    loss = f(out)\n" + STEP + "    kept.append(out.to(device='cpu'))\n",
    ],
    "item_in_loop": [
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    a, c, d = loss.item(), x.item(), y.item()\n",
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    norms = [p.grad.norm().item() for p in model.parameters()]\n",
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    torch.cuda.synchronize()\n",
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    torch.cuda.empty_cache()\n",
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    for p in model.parameters():\n        total += p.grad.abs().max().item()\n",
    ],
    "no_detach_for_log": [
        "kept = []\nfor b in loader:\n    loss = model(b)\n    kept.append(loss)\n" + STEP,
        "for b in loader:\n    loss = model(b)\n    self.losses.append(loss)\n" + STEP,
        "log = {'loss': []}\nfor b in loader:\n    loss = model(b)\n    log['loss'].append(loss)\n" + STEP,
        "for b in loader:\n    loss = model(b)\n    history.append(loss * 2)\n" + STEP,
        "for b in loader:\n    loss = model(b)\n    history += [loss]\n" + STEP,
    ],
    "cycle_keeps_batches": [
        "from itertools import cycle\nfor b in cycle(loader):\n    f(b)\n",
        "import itertools\nit = itertools.cycle(train_loader)\n",
        "it = iter(itertools.cycle(DataLoader(data)))\n",
        "import itertools as it\nrows = it.cycle(loader)\n",
        "from itertools import cycle as again\nrows = again(train_dl)\n",
    ],
    "low_precision_weights": [
        "model = Net().to(torch.bfloat16)\nopt = torch.optim.AdamW(model.parameters())\n",
        "model = Net().bfloat16()\nopt = AdamW(model.parameters())\n",
        "model.to(dtype=torch.bfloat16)\nopt = SGD(model.parameters(), lr=0.1)\n",
        "model = AutoModel.from_pretrained('a', torch_dtype=torch.bfloat16)\nopt = torch.optim.AdamW(model.parameters())\n",
        "model = AutoModel.from_pretrained('a', dtype='bfloat16')\nopt = Adam(model.parameters())\n",
    ],
    "default_device": [
        MANY + "model = Net().to('cuda:0')\n",
        MANY + "device = torch.device('cuda:0')\n",
        MANY + "torch.cuda.set_device(0)\n",
        MANY + "p.add_argument('--device', default='cuda:0')\n",
        MANY + "model = Net().cuda(0)\n",
    ],
    "prepared_twice": [
        "acc = Accelerator()\nmodel, opt = acc.prepare(model, opt)\nmodel, opt = acc.prepare(model, opt)\n",
        "accelerator = Accelerator()\nsched = accelerator.prepare(sched)\nmodel, opt, sched = accelerator.prepare(model, opt, sched)\n",
        "fabric = Fabric()\nmodel, opt = fabric.setup(model, opt)\nmodel = fabric.setup(model)\n",
        "class T:\n    def start(self):\n        self.model = self.accelerator.prepare(self.model)\n        self.model, self.opt = self.accelerator.prepare(self.model, self.opt)\n",
        "accelerator = Accelerator()\nmodel = accelerator.prepare(model)\nfor e in range(3):\n    model = accelerator.prepare(model)\n",
    ],
    "num_workers_fork_threads": [
        "import polars as pl\ndata = pl.read_parquet('a')\nl = DataLoader(d, num_workers=4)\n",
        "import polars\nframe = polars.scan_csv('a').collect()\nl = DataLoader(d, num_workers=args.workers)\n",
        "import lmdb, polars as pl\nx = pl.read_csv('a')\nl = torch.utils.data.DataLoader(d, 4, num_workers=8)\n",
        "import polars as pl\nclass D(Dataset):\n    def __init__(self):\n        self.rows = pl.read_csv('a')\nl = DataLoader(D(), num_workers=2)\n",
        "from polars import read_csv\nx = read_csv('a')\nl = DataLoader(d, num_workers=2)\n",
    ],
    "driver_queried": [
        GPU + "for b in loader:\n    out = subprocess.check_output(['nvidia-smi'])\n",
        GPU + "while True:\n    out = subprocess.run('nvidia-smi --query-gpu=memory.used --format=csv', shell=True)\n",
        GPU + "def memory():\n    return subprocess.check_output(['nvidia-smi', '-q'])\nfor b in loader:\n    memory()\n",
        GPU + "def memory():\n    return os.popen('nvidia-smi').read()\nfor b in loader:\n    print(memory())\n",
        GPU + "CMD = ['nvidia-smi', '-q']\nfor b in loader:\n    out = subprocess.check_output(CMD)\n",
    ],
    "labels_unmasked": [
        LABELS + "rows['labels'] = rows['input_ids'].clone()\n",
        LABELS + "labels = rows['input_ids'].clone()\n",
        LABELS + "rows['labels'] = copy.deepcopy(rows['input_ids'])\n",
        LABELS + "rows['labels'] = rows.input_ids\n",
        "def encode(t):\n    r = tokenizer(t, padding='max_length', max_length=9)\n    r['labels'] = r['input_ids'].copy()\n    return r\n",
    ],
    "regex_one_line": [
        COMPLETION + "return float(bool(re.match(r'<think>.*</think>', text)))\n",
        COMPLETION + "return re.search('<answer>(.*?)</answer>', text) is not None\n",
        "PATTERN = r'^<think>.*?</think>\\s*<answer>.*?</answer>$'\n" + COMPLETION + "return bool(re.match(PATTERN, text))\n",
        "PATTERN = re.compile('<think>.*</think>')\n" + COMPLETION + "return bool(PATTERN.search(text))\n",
        COMPLETION + "p = re.compile(r'<answer>(.+)</answer>')\n    return bool(p.findall(text))\n",
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "item_before_backward": [
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    total += loss.item()\n",
        GPU + "for b in loader:\n    n = torch.randint(0, 9, (1,)).item()\n    loss = model(b, n)\n" + STEP,
        GPU + "for b in loader:\n    loss = model(b)\n    if step % 100 == 0:\n        print(loss.item())\n" + STEP,
    ],
    "device_transfer_in_loop": [
        GPU + "for b in loader:\n    loss = model(b.to(device))\n" + STEP,
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    if step % 100 == 0:\n        x = loss.cpu()\n",
        GPU + "with torch.no_grad():\n    for b in loader:\n        out.append(model(b).cpu())\n",
    ],
    "item_in_loop": [
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    total += loss.item()\n",
        GPU + "for b in loader:\n    loss = model(b)\n" + STEP + "    if step % 10 == 0:\n        norms = [p.grad.norm().item() for p in model.parameters()]\n",
        GPU + "for b in loader:\n    for k, v in b.items():\n        seen.add(k)\n    loss = model(b)\n" + STEP,
    ],
    "no_detach_for_log": [
        "for b in loader:\n    loss = model(b)\n    kept.append(loss.item())\n" + STEP,
        "for b in loader:\n    loss = model(b)\n    kept.append(loss.detach())\n" + STEP,
        "for b in loader:\n    losses = []\n    for part in b:\n        losses.append(model(part))\n    loss = sum(losses)\n" + STEP,
    ],
    "cycle_keeps_batches": [
        "from itertools import cycle\ncolours = cycle(['red', 'blue'])\n",
        "def cycle(loader):\n    while True:\n        yield from loader\nfor b in cycle(loader):\n    f(b)\n",
        "scheduler.cycle(loader)\n",
    ],
    "low_precision_weights": [
        "model = Net()\nopt = AdamW(model.parameters())\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n    model(x)\n",
        "teacher = Net().to(torch.bfloat16)\nmodel = Net()\nopt = AdamW(model.parameters())\n",
        "model = Net().to(torch.bfloat16)\nmodel.eval()\n",
    ],
    "default_device": [
        MANY + "model = Net().to(f'cuda:{rank}')\n",
        MANY + "torch.cuda.set_device(local_rank)\n",
        MANY + "model = Net().to('cuda')\n",
    ],
    "prepared_twice": [
        "acc = Accelerator()\nmodel, opt = acc.prepare(model, opt)\nsched = acc.prepare(sched)\n",
        "acc = Accelerator()\nif fsdp:\n    model = acc.prepare(model)\nelse:\n    model = acc.prepare(model)\n",
        "acc = Accelerator()\nmodel = acc.prepare(model)\nmodel = acc.unwrap_model(model)\nmodel = acc.prepare(model)\n",
    ],
    "num_workers_fork_threads": [
        "import polars as pl\nx = pl.read_csv('a')\nl = DataLoader(d, num_workers=0)\n",
        "import polars as pl\nx = pl.read_csv('a')\nl = DataLoader(d, num_workers=4, multiprocessing_context='spawn')\n",
        "import numpy as np\nx = np.load('a')\nl = DataLoader(d, num_workers=4)\n",
    ],
    "driver_queried": [
        GPU + "print(subprocess.check_output(['nvidia-smi']))\nfor b in loader:\n    f(b)\n",
        GPU + "for b in loader:\n    subprocess.run(['ls'])\n",
        GPU + "def show():\n    os.system('nvidia-smi')\nshow()\n",
    ],
    "labels_unmasked": [
        LABELS + "rows['labels'] = rows['input_ids'].clone()\nrows['labels'][rows['attention_mask'] == 0] = -100\n",
        "rows = tokenizer(texts)\nrows['labels'] = rows['input_ids'].clone()\n",
        LABELS + "rows['labels'] = targets\n",
    ],
    "regex_one_line": [
        COMPLETION + "return bool(re.match(r'<think>.*</think>', text, re.DOTALL))\n",
        COMPLETION + "return bool(re.match(r'(?s)<think>.*</think>', text))\n",
        COMPLETION + "return bool(re.search(r'<answer>[\\s\\S]*</answer>', text))\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path, name, source):
    assert name in names(tmp_path, source)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path, name, source):
    assert name not in names(tmp_path, source)
