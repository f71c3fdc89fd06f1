"""Ten more hazards in code: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import pytest

from tests.tools.test_hazard_spellings import MANY, names

WRAPPED = MANY + "from torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(Net())\n"
STEP = "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
SCALED = "scaler = torch.amp.GradScaler()\nfor x, y in loader:\n    scaler.scale(f(x, y)).backward()\n"

FAULTS: dict[str, list[str]] = {
    "softmax_before_cross_entropy": [
        "p = torch.softmax(model(x), -1)\nloss = F.cross_entropy(p, y)\n",
        "loss = F.cross_entropy(model(x).softmax(dim=1), y)\n",
        "criterion = nn.CrossEntropyLoss()\nout = F.softmax(net(x), dim=1)\nloss = criterion(out, y)\n",
        "class Net(nn.Module):\n    def __init__(self):\n        self.head = nn.Linear(4, 3)\n    def forward(self, x):\n        return F.softmax(self.head(x), dim=1)\nloss = nn.CrossEntropyLoss()(Net()(x), y)\n",
        "class Net(nn.Module):\n    def __init__(self):\n        self.layers = nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1))\n    def forward(self, x):\n        return self.layers(x)\nloss = F.cross_entropy(Net()(x), y)\n",
    ],
    "missing_optimizer_step": [
        "for x, y in loader:\n    optimizer.zero_grad()\n    f(model(x), y).backward()\n",
        "for b in loader:\n    loss = model(b)\n    loss.backward()\n    scheduler.step()\n    optimizer.zero_grad(set_to_none=True)\n",
        "while step < 100:\n    model.zero_grad()\n    loss = model(next(it))\n    loss.backward()\n    step += 1\n",
        "def train_epoch(model, loader, opt):\n    for b in loader:\n        opt.zero_grad()\n        loss = model(b).mean()\n        loss.backward()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        "for b in loader:\n    accelerator.backward(model(b).loss)\n    lr_scheduler.step()\n    optimizer.zero_grad()\n",
    ],
    "half_weights_trained": [
        "model = model.half()\nfor b in loader:\n    loss = model(b)\n" + STEP,
        "model.half()\nfor b in loader:\n    loss = model(b)\n" + STEP,
        "net = Net().cuda().half()\nfor b in loader:\n    loss = net(b)\n" + STEP,
        "model = Net().to(torch.float16)\nfor b in loader:\n    loss = model(b)\n" + STEP,
        "model = Net()\nmodel.to(device, dtype=torch.half)\nfor b in loader:\n    loss = model(b)\n" + STEP,
    ],
    "no_distributed_sampler": [
        WRAPPED + "loader = DataLoader(data, batch_size=8, shuffle=True)\n",
        WRAPPED + "loader = DataLoader(dataset=data, batch_size=8)\n",
        WRAPPED + "loader = torch.utils.data.DataLoader(data, 8, True)\n",
        MANY + "model = torch.nn.parallel.DistributedDataParallel(net, device_ids=[rank])\nloader = DataLoader(data, shuffle=True)\n",
        MANY + "model = nn.parallel.DistributedDataParallel(net)\ndef loaders():\n    return DataLoader(data, batch_size=4)\ntrain = loaders()\n",
    ],
    "sampler_no_set_epoch": [
        WRAPPED + "s = DistributedSampler(data)\nfor epoch in range(9):\n    for b in DataLoader(data, sampler=s):\n        f(b)\n",
        WRAPPED + "s = torch.utils.data.distributed.DistributedSampler(data, shuffle=True)\nfor epoch in range(9):\n    f(s)\n",
        WRAPPED + "l = DataLoader(data, sampler=DistributedSampler(data, num_replicas=2, rank=rank))\nfor ep_epoch in range(9):\n    f(l)\n",
        WRAPPED + "s = DistributedSampler(data)\nepoch = 0\nwhile epoch < 9:\n    f(s)\n    epoch += 1\n",
        WRAPPED + "s = DistributedSampler(data)\nfor e in range(args.epochs):\n    f(s)\n",
    ],
    "open_in_getitem": [
        "class D(Dataset):\n    def __getitem__(self, i):\n        with h5py.File(self.path) as f:\n            return f['x'][i]\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        return pd.read_csv(self.path).iloc[i]\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        f = h5py.File(self.path, 'r')\n        return f[str(i)][:]\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        return self.read(i)\n    def read(self, i):\n        return h5py.File(self.path)['x'][i]\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        env = lmdb.open(self.path)\n        return env.begin().get(str(i))\n",
    ],
    "unbounded_cache": [
        "class D(Dataset):\n    @functools.lru_cache(maxsize=None)\n    def __getitem__(self, i):\n        return load(i)\n",
        "class D(Dataset):\n    @cache\n    def load(self, i):\n        return read(i)\n    def __getitem__(self, i):\n        return self.load(i)\n",
        "class D(Dataset):\n    @lru_cache(None)\n    def load_image(self, i):\n        return read(i)\n",
        "@functools.cache\ndef picture(path):\n    return read(path)\nclass D(Dataset):\n    def __getitem__(self, i):\n        return picture(self.paths[i])\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        return self.decoded(self.paths[i])\n    @lru_cache(maxsize=None)\n    def decoded(self, path):\n        return read(path)\n",
    ],
    "clip_before_unscale": [
        SCALED + "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n",
        SCALED + "    nn.utils.clip_grad_value_(model.parameters(), 0.5)\n    scaler.step(optimizer)\n    scaler.update()\n",
        SCALED + "    clip_grad_norm_(net.parameters(), args.clip)\n    scaler.unscale_(opt)\n    scaler.step(opt)\n    scaler.update()\n",
        SCALED.replace("scaler", "self.grad_scaler") + "    clip_grad_norm_(self.net.parameters(), 1)\n    self.grad_scaler.step(opt)\n    self.grad_scaler.update()\n",
        SCALED + "    if i % n == 0:\n        clip_grad_norm_(net.parameters(), 1.0)\n        scaler.step(opt)\n        scaler.update()\n",
    ],
    "shuffle_with_sampler": [
        "DataLoader(data, sampler=s, shuffle=True)\n",
        "DataLoader(data, batch_size=8, shuffle=True, sampler=DistributedSampler(data))\n",
        "DataLoader(data, 8, True, s)\n",
        "DataLoader(data, 8, True, sampler=s)\n",
        "torch.utils.data.DataLoader(dataset=data, sampler=WeightedRandomSampler(w, 9), shuffle=True)\n",
    ],
    "ddp_bypassed": [
        WRAPPED + "for b in loader:\n    loss = model.module(b)\n" + STEP,
        WRAPPED + "for b in loader:\n    loss = model.module.forward(b)\n" + STEP,
        WRAPPED.replace("model =", "self.model =") + "for b in loader:\n    loss = self.model.module(b).mean()\n" + STEP,
        WRAPPED + "net = model.module\nfor b in loader:\n    loss = net(b)\n" + STEP,
        MANY + "net = Net()\nmodel = DistributedDataParallel(net) if world > 1 else net\nfor b in loader:\n    loss = net(b)\n" + STEP,
        MANY + "net = Net()\nmodel = DistributedDataParallel(net)\nfor b in loader:\n    loss = net(b)\n" + STEP,
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "softmax_before_cross_entropy": [
        "logits = model(x)\nloss = F.cross_entropy(logits, y)\np = logits.softmax(-1)\n",
        "p = torch.softmax(scores, -1)\nout = p @ values\nloss = F.cross_entropy(head(out), y)\n",
        "class Net(nn.Module):\n    def forward(self, x):\n        out = self.head(x)\n        return out if self.training else F.softmax(out, dim=1)\nloss = nn.CrossEntropyLoss()(Net()(x), y)\n",
    ],
    "missing_optimizer_step": [
        "for b in loader:\n    optimizer.zero_grad()\n    loss = model(b)\n    loss.backward()\n    optimizer.step()\n",
        "for b in loader:\n    optimizer.zero_grad()\n    loss = model(b)\n    optimizer.step(lambda: loss.backward())\n",
        "for x in images:\n    model.zero_grad()\n    score = model(x).max()\n    score.backward()\n    maps.append(x.grad.abs())\n",
    ],
    "half_weights_trained": [
        "model = model.half()\nwith torch.no_grad():\n    for b in loader:\n        model(b)\n",
        "scaler = GradScaler()\nteacher = teacher.half()\nfor b in loader:\n    loss = model(b)\n" + STEP,
        "model = Net().to(torch.bfloat16)\nfor b in loader:\n    loss = model(b)\n" + STEP,
    ],
    "no_distributed_sampler": [
        WRAPPED + "loader = DataLoader(data, sampler=DistributedSampler(data))\n",
        WRAPPED + "data = data.shard(world, rank)\nloader = DataLoader(data, batch_size=8)\n",
        WRAPPED + "files = files[rank::world]\nloader = DataLoader(Files(files), batch_size=8)\n",
    ],
    "sampler_no_set_epoch": [
        WRAPPED + "s = DistributedSampler(data)\nfor epoch in range(9):\n    s.set_epoch(epoch)\n",
        WRAPPED + "s = DistributedSampler(data, shuffle=False)\nfor epoch in range(9):\n    f(s)\n",
        WRAPPED + "s = DistributedSampler(data)\nfor b in DataLoader(data, sampler=s):\n    f(b)\n",
    ],
    "open_in_getitem": [
        "class D(Dataset):\n    def __init__(self, path):\n        self.f = h5py.File(path)\n    def __getitem__(self, i):\n        return self.f['x'][i]\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        if self.f is None:\n            self.f = h5py.File(self.path)\n        return self.f['x'][i]\n",
        "class D(Dataset):\n    def __getitem__(self, i):\n        return Image.open(self.paths[i])\n",
    ],
    "unbounded_cache": [
        "class D(Dataset):\n    @lru_cache(maxsize=128)\n    def load(self, i):\n        return read(i)\n",
        "@functools.cache\ndef config():\n    return read('a.yaml')\n",
        "class D(Dataset):\n    @functools.cached_property\n    def table(self):\n        return read(self.path)\n",
    ],
    "clip_before_unscale": [
        SCALED + "    scaler.unscale_(opt)\n    clip_grad_norm_(net.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n",
        "for b in loader:\n    loss.backward()\n    clip_grad_norm_(net.parameters(), 1.0)\n    opt.step()\n",
        SCALED + "    if cfg.clip:\n        scaler.unscale_(opt)\n        clip_grad_norm_(net.parameters(), 1.0)\n    scaler.step(opt)\n    scaler.update()\n",
    ],
    "shuffle_with_sampler": [
        "DataLoader(data, sampler=s, shuffle=False)\n",
        "DataLoader(data, sampler=s, shuffle=s is None)\n",
        "DataLoader(data, shuffle=True)\n",
    ],
    "ddp_bypassed": [
        WRAPPED + "for b in loader:\n    loss = model(b)\n" + STEP,
        WRAPPED + "for b in loader:\n    loss = model(b)\n" + STEP + "torch.save(model.module.state_dict(), 'a.pt')\n",
        WRAPPED + "for b in loader:\n    loss = model(b)\n" + STEP + "    with torch.no_grad():\n        f(model.module(b))\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path, name, source):
    assert name in names(tmp_path, source)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path, name, source):
    assert name not in names(tmp_path, source)
