"""Hazards of models, tokenizers, rewards and pipelines: the fault in five spellings, and sound code that looks like it."""

from __future__ import annotations

import pytest

from tests.tools.test_hazard_spellings import names

LOOP = "for b in loader:\n    loss = model(b)\n    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
COLLATOR = "collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)\n"
COMPILED = "net = torch.compile(Net())\nclass Net(nn.Module):\n"
ITEM = "class D(Dataset):\n    def __getitem__(self, i):\n"

FAULTS: dict[str, list[str]] = {
    "lora_target": [
        "config = LoraConfig(r=8, target_modules=['q_proj', 'v_proj'])\n",
        "config = peft.LoraConfig(target_modules='all-linear')\n",
        "TARGETS = ['q_proj']\nconfig = LoraConfig(r=8, target_modules=TARGETS)\n",
        "config = LoraConfig(**dict(r=8, target_modules=('q_proj',)))\n",
        "kw = {'r': 8, 'target_modules': ['q_proj']}\nconfig = LoraConfig(**kw)\n",
    ],
    "requires_grad_false": [
        "for p in model.parameters():\n    p.requires_grad = False\n" + LOOP,
        "model.requires_grad_(False)\n" + LOOP,
        "for name, p in model.named_parameters():\n    p.requires_grad_(False)\n" + LOOP,
        "for p in model.encoder.parameters():\n    p.requires_grad = False\n" + LOOP,
        "for layer in model.layers:\n    for p in layer.parameters():\n        p.requires_grad = False\n" + LOOP,
    ],
    "reentrant_checkpoint": [
        "import torch.utils.checkpoint\nx = torch.utils.checkpoint.checkpoint(block, x)\n",
        "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=True)\n",
        "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': True})\n",
        "model.gradient_checkpointing_enable(dict(use_reentrant=True))\n",
        "from torch.utils import checkpoint as cp\n# torch.utils.checkpoint\nx = cp.checkpoint(block, x, mask)\n",
    ],
    "pad_is_eos": [
        "tokenizer.pad_token = tokenizer.eos_token\n" + COLLATOR,
        "tokenizer.pad_token_id = tokenizer.eos_token_id\n" + COLLATOR,
        "if tokenizer.pad_token is None:\n    tokenizer.pad_token = tokenizer.eos_token\n" + COLLATOR,
        "self.tokenizer.pad_token = self.tokenizer.eos_token\nlabels[labels == self.tokenizer.pad_token_id] = -100\n",
        "tok.pad_token = tok.eos_token\nlabels = ids.masked_fill(ids == tok.pad_token_id, -100)\n",
    ],
    "tensor_view_shared": [
        LOOP + "    if loss < best:\n        best = loss\n        best_state = model.state_dict()\n",
        "for epoch in range(3):\n    train(model)\n    if score(model) > best:\n        best_weights = model.state_dict()\n",
        "while True:\n    loss = model(next(it))\n    loss.backward()\n    optimizer.step()\n    if ok(loss):\n        self.best_model = self.model.state_dict()\n",
        LOOP + "    if loss < best:\n        best_params = {k: v for k, v in model.state_dict().items()}\n",
        LOOP + "    if loss < best:\n        best_model = model\n        best = loss\n",
    ],
    "compiled_counter": [
        COMPILED + "    def forward(self, x):\n        self.calls += 1\n        return x\n",
        COMPILED + "    def forward(self, x):\n        self.step = self.step + 1\n        return x * self.step\n",
        COMPILED + "    def update(self, x):\n        self.seen += len(x)\n    def forward(self, x):\n        self.update(x)\n        return x\n",
        COMPILED + "    def __call__(self, x):\n        self.n += 1\n        return x\n",
        "@torch.compile\ndef f(m, x):\n    return m(x)\nclass M(nn.Module):\n    def forward(self, x):\n        self.count += 1\n        return x\n",
    ],
    "data_errors_swallowed": [
        ITEM + "        try:\n            return read(i)\n        except Exception:\n            return self[i + 1]\n",
        ITEM + "        try:\n            return read(i)\n        except:\n            return None\n",
        "class D(IterableDataset):\n    def __iter__(self):\n        for r in self.rows:\n            try:\n                yield parse(r)\n            except Exception as e:\n                continue\n",
        ITEM + "        while True:\n            try:\n                return read(i)\n            except Exception:\n                i = random.randrange(9)\n",
        "def collate_fn(rows):\n    out = []\n    for r in rows:\n        try:\n            out.append(parse(r))\n        except BaseException:\n            pass\n    return out\n",
    ],
    "mutable_global": [
        "CACHE = {}\n" + ITEM + "        CACHE[i] = read(i)\n        return CACHE[i]\n",
        "SEEN = []\n" + ITEM + "        SEEN.append(i)\n        return read(i)\n",
        "cache = dict()\n" + ITEM + "        cache[i] = read(i)\n        return cache[i]\n",
        "LOG = []\nclass M(nn.Module):\n    def forward(self, x):\n        LOG.append(x)\n        return x\n",
        "CACHE = {}\n" + ITEM + "        return CACHE.setdefault(i, read(i))\n",
    ],
    "stop_string_generic": [
        "params = SamplingParams(stop=['User'])\nllm.generate(p, params)\n",
        "stop_strings = ['Human', '\\n\\n']\nmodel.generate(x, stop_strings=stop_strings)\n",
        "out = client.chat.completions.create(messages=m, stop='Question')\n",
        "config = {'stop': ['the']}\nllm.generate(p, **config)\n",
        "STOP_SEQUENCES = ('Answer',)\nllm.generate(p, stop=STOP_SEQUENCES)\n",
    ],
    "regex_extraction_last_number": [
        "def extract(text):\n    return re.findall(r'-?\\d+', text)[-1]\n",
        "def extract(text):\n    found = re.findall(r'\\d+(?:\\.\\d+)?', text)\n    return found[-1] if found else None\n",
        "NUMBER = re.compile(r'\\d+')\ndef extract(text):\n    return NUMBER.findall(text)[-1]\n",
        "def extract(text):\n    *_, last = re.findall(r'[0-9]+', text)\n    return last\n",
        "def extract(text):\n    return re.findall('[0-9.]+', text.replace(',', ''))[-1]\n",
    ],
    "reward_errors_swallowed": [
        "def reward(a, b):\n    try:\n        return float(a == solve(b))\n    except Exception:\n        return 0.0\n",
        "def compute_score(a):\n    try:\n        return run(a)\n    except:\n        return -1\n",
        "def reward_fn(rows):\n    out = []\n    for r in rows:\n        try:\n            out.append(check(r))\n        except Exception:\n            continue\n    return out\n",
        "def math_reward(a):\n    score = 0.0\n    try:\n        score = check(a)\n    except Exception as e:\n        score = 0.0\n    return score\n",
        "class R:\n    def verify(self, a):\n        with contextlib.suppress(Exception):\n            return check(a)\n        return 0\n",
    ],
    "reward_returns_nothing": [
        "def reward(a, b):\n    if a == b:\n        return 1.0\n",
        "def compute_score(a):\n    if a:\n        return 1\n    elif a == '':\n        return 0\n",
        "def reward_fn(a):\n    x = parse(a)\n    if x is not None:\n        return float(x > 0)\n",
        "def grade(a):\n    for part in a:\n        if part == 'yes':\n            return 1.0\n",
        "def score_fn(a):\n    try:\n        return check(a)\n    except ValueError:\n        print('bad')\n",
    ],
}  # fmt: skip

SOUND: dict[str, list[str]] = {
    "lora_target": [
        "config = LoraConfig(r=8)\n",
        "config = PromptTuningConfig(target_modules=['q_proj'])\n",
        "print(config.target_modules)\n",
    ],
    "requires_grad_false": [
        "for p in teacher.parameters():\n    p.requires_grad = False\n" + LOOP,
        "model.requires_grad_(False)\nmodel.head.requires_grad_(True)\n" + LOOP,
        "x.requires_grad = False\n" + LOOP,
    ],
    "reentrant_checkpoint": [
        "from torch.utils.checkpoint import checkpoint\nx = checkpoint(block, x, use_reentrant=False)\n",
        "model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})\n",
        "path = checkpoint(model, 'out')\n",
    ],
    "pad_is_eos": [
        "tokenizer.pad_token = '<pad>'\n" + COLLATOR,
        "tokenizer.pad_token = tokenizer.unk_token\n" + COLLATOR,
        "tokenizer.pad_token = tokenizer.eos_token\nout = model.generate(**tokenizer(texts, padding=True))\n",
    ],
    "tensor_view_shared": [
        LOOP + "    if loss < best:\n        best_state = copy.deepcopy(model.state_dict())\n",
        LOOP + "    if loss < best:\n        best_state = {k: v.clone() for k, v in model.state_dict().items()}\n",
        LOOP + "best_state = model.state_dict()\ntorch.save(best_state, 'a.pt')\n",
    ],
    "compiled_counter": [
        "class Net(nn.Module):\n    def forward(self, x):\n        self.calls += 1\n        return x\n",
        COMPILED + "    def forward(self, x):\n        calls = 0\n        calls += 1\n        return x\n",
        COMPILED + "    def log(self, x):\n        self.calls += 1\n    def forward(self, x):\n        return x\n",
    ],
    "data_errors_swallowed": [
        ITEM + "        try:\n            return read(i)\n        except Exception:\n            print(i)\n            raise\n",
        ITEM + "        try:\n            return read(i)\n        except KeyError:\n            return read(0)\n",
        "def main():\n    try:\n        run()\n    except Exception:\n        print('ended')\n",
    ],
    "mutable_global": [
        "NAMES = {'a': 1}\n" + ITEM + "        return NAMES[self.rows[i]]\n",
        ITEM + "        cache = {}\n        cache[i] = 1\n        return cache\n",
        "CACHE = {}\ndef fill():\n    CACHE['a'] = 1\n",
    ],
    "stop_string_generic": [
        "params = SamplingParams(stop=['</answer>'])\nllm.generate(p, params)\n",
        "params = SamplingParams(stop=['\\n\\nHuman:'])\nllm.generate(p, params)\n",
        "early = EarlyStopping(stop='yes')\nllm.generate(p)\n",
    ],
    "regex_extraction_last_number": [
        "def extract(text):\n    return re.search(r'#### (-?\\d+)', text)[1]\n",
        "def steps(text):\n    return len(re.findall(r'\\d+', text))\n",
        "def extract(text):\n    return re.findall(r'#### (-?\\d+)', text)[-1]\n",
    ],
    "reward_errors_swallowed": [
        "def reward(a, b):\n    try:\n        return float(a)\n    except ValueError:\n        return 0.0\n",
        "def reward(a):\n    try:\n        return check(a)\n    except Exception:\n        log(a)\n        raise\n",
        "def load(a):\n    try:\n        return read(a)\n    except Exception:\n        return None\n",
    ],
    "reward_returns_nothing": [
        "def reward(a, b):\n    if a == b:\n        return 1.0\n    return 0.0\n",
        "def reward(a, b):\n    if a == b:\n        return 1.0\n    else:\n        return 0.0\n",
        "def log_reward(a):\n    if a:\n        print(a)\n",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in FAULTS.items() for s in sources])
def test_a_fault_in_any_spelling(tmp_path, name, source):
    assert name in names(tmp_path, source)


@pytest.mark.parametrize(("name", "source"), [(n, s) for n, sources in SOUND.items() for s in sources])
def test_what_only_looks_like_it(tmp_path, name, source):
    assert name not in names(tmp_path, source)
