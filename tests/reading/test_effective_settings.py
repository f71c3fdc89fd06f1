"""What a program's expressions come to: one value with the line that decides it, whatever way it was given."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.settings import read_settings
from traindoctor.agent.tools.settings.settings_tools import lint_settings
from traindoctor.agent.tools.settings.settings_tools import read_settings as tell

TRAIN = """\
import torch
{made}
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr={used})
for _ in range(10):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""
LOAD = "import yaml\nwith open('conf/run.yaml') as f:\n    cfg = yaml.safe_load(f)"
PARSE = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--rate', type=float, default={})\na = p.parse_args()"
DATACLASS = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    rate: float = {}\nc = Config({})"
# how it is given: what makes it, how it is used, files beside, where it is decided (file, a part of its line)
WAYS = {
    "a literal": ("", "{}", {}, ("train.py", "AdamW(")),
    "a constant": ("RATE = {}", "RATE", {}, ("train.py", "RATE =")),
    "a default": (PARSE, "a.rate", {}, ("train.py", "add_argument")),
    "a flag": (
        PARSE.replace("{}", "0.5"), "a.rate", {"run.sh": "python train.py --rate {}\n"}, ("run.sh", "--rate"),
    ),
    "a flag on a line of its own": (
        PARSE.replace("{}", "0.5"), "a.rate",
        {"run.sh": "python train.py \\\n  --other 3 \\\n  --rate={}\n"}, ("run.sh", "--rate"),
    ),
    "a config": (LOAD, "cfg['optim']['rate']", {"conf/run.yaml": "optim:\n  rate: {}\n"}, ("conf/run.yaml", "rate")),
    "a config that a word names": (
        LOAD.replace("'conf/run.yaml'", "sys.argv[1]").replace("yaml\n", "yaml, sys\n", 1), "float(cfg['rate'])",
        {"conf/a.yaml": "rate: {}\n", "conf/b.yaml": "rate: 0.5\n", "run.sh": "python train.py conf/a.yaml\n"},
        ("conf/a.yaml", "rate"),
    ),
    "a file that is executed": (
        "RATE = 0.5\nexec(open('configurator.py').read())", "RATE",
        {"configurator.py": "import sys\nfor arg in sys.argv[1:]:\n    exec(open(arg).read())\n",
         "conf/small.py": "RATE = {}\n", "conf/large.py": "RATE = 0.25\n", "run.sh": "python train.py conf/small.py\n"},
        ("conf/small.py", "RATE"),
    ),
    "a word over what is executed": (
        "RATE = 0.5\nexec(open('configurator.py').read())", "RATE",
        {"configurator.py": "import sys\n", "conf/small.py": "RATE = 0.25\n",
         "run.sh": "python train.py conf/small.py --RATE={}\n"},
        ("run.sh", "--RATE"),
    ),
    "a field": (DATACLASS.replace("({})", "()"), "c.rate", {}, ("train.py", "rate: float")),
    "a field that is given": (DATACLASS.replace("{}", "0.5", 1), "c.rate", {}, ("train.py", "Config(")),
    "a function": (
        "def options():\n    import argparse\n    p = argparse.ArgumentParser()\n    p.add_argument('--rate', default={})\n"
        "    return p.parse_args()\nclass Run:\n    def __init__(self, args):\n        self.args = args\n"
        "        self.rate = self.args.rate\nrun = Run(options())", "run.rate", {}, ("train.py", "add_argument"),
    ),
}  # fmt: skip


def made(root: Path, files: dict[str, str]) -> Workspace:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Workspace([root], live=False)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=8, deadline=None)
@given(value=st.floats(1e-6, 0.2).filter(lambda v: v not in (0.5, 0.25)))
def test_one_value_whatever_way_it_is_given(way: str, value: float) -> None:
    makes, used, beside, (file, part) = WAYS[way]
    put = {name: text.replace("{}", repr(value)) for name, text in beside.items()}
    text = TRAIN.format(made=makes.replace("{}", repr(value)), used=used.replace("{}", repr(value)))
    with tempfile.TemporaryDirectory() as root:
        found = read_settings(made(Path(root), {"train.py": text, **put})).asked("learning_rate")
    assert [s.value for s in found] == [value]
    assert found[0].file.name == file and part in found[0].line.text


def test_an_override_of_hydra_takes_the_place_of_the_file(tmp_path: Path) -> None:
    code = (
        "import hydra, torch\n@hydra.main(config_path='conf', config_name='main')\ndef main(cfg):\n"
        "    torch.optim.AdamW([], lr=cfg.optim.lr, weight_decay=cfg.optim.wd)\nmain()\n"
    )
    files = {
        "train.py": code,
        "conf/main.yaml": "defaults:\n  - optim: adam\n",
        "conf/optim/adam.yaml": "lr: 0.1\nwd: 0.2\n",
        "conf/optim/sgd.yaml": "lr: 0.3\n",
        "run.sh": "python train.py --config-name main optim.lr=0.01\n",
    }
    reading = read_settings(made(tmp_path, files))
    assert [(s.value, s.file.name) for s in reading.asked("learning_rate")] == [(0.01, "run.sh")]
    assert [(s.value, s.file.name) for s in reading.asked("weight_decay")] == [(0.2, "conf/optim/adam.yaml")]


BRANCHES = """\
import argparse
from transformers import BertConfig, LlamaConfig
from peft import LoraConfig
p = argparse.ArgumentParser()
p.add_argument("--kind", default="llama")
p.add_argument("--lora", action="store_true")
args = p.parse_args()
if args.kind == "bert":
    config = BertConfig(hidden_size=48)
else:
    config = LlamaConfig(hidden_size=32)
if args.lora:
    LoraConfig(r=8)


def unused():
    return LlamaConfig(num_hidden_layers=7)


def used():
    return LlamaConfig(num_attention_heads=4)


used()
"""


@pytest.mark.parametrize(
    ("command", "sizes", "ranks"),
    [
        ("python train.py\n", [32], []),
        ("python train.py --kind bert --lora\n", [48], [8]),
        ("python train.py --kind $KIND\n", [48, 32], []),
        ("echo none\n", [48, 32], [8]),  # nobody knows how it was started
    ],
)
def test_branches_and_functions_that_are_not_taken(
    tmp_path: Path, command: str, sizes: list[int], ranks: list[int]
) -> None:
    reading = read_settings(made(tmp_path, {"train.py": BRANCHES, "run.sh": command}))
    assert [s.value for s in reading.asked("hidden_size")] == sizes
    assert [s.value for s in reading.asked("lora_rank")] == ranks
    assert [s.value for s in reading.asked("attention_heads")] == [4]
    assert not reading.asked("num_layers")


def test_what_cannot_be_followed_is_no_value_and_no_absence(tmp_path: Path) -> None:
    code = (
        "import torch\nfrom somewhere import rate, bound\nmodel = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=rate(3))\nloss = model(torch.ones(2)).sum()\n"
        "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), bound.value())\noptimizer.step()\n"
    )
    ws = made(tmp_path, {"train.py": code})
    reading = read_settings(ws)
    assert not reading.asked("learning_rate") and not reading.asked("gradient_clip_norm")
    assert {s.name for s in reading.open} >= {"learning_rate", "gradient_clip_norm"}
    assert not [e for e in tell(ws).evidence if "gradient_clip_norm" in e.key or "learning_rate" in e.key]


PLAIN = """\
import torch
import torch.distributed as dist
from transformers import AutoTokenizer
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(10):
    model(torch.ones(2)).sum().backward()
    {clip}
    optimizer.step()
"""


def test_absences_are_told_of_what_the_program_would_read(tmp_path: Path) -> None:
    absent = {}
    for name, clip in (("with", "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"), ("without", "pass")):
        root = tmp_path / name
        ws = made(root, {"train.py": PLAIN.format(clip=clip), "run.sh": "torchrun --nproc-per-node 2 train.py\n"})
        absent[name] = {e.key.rpartition(".")[2] for e in tell(ws).evidence if e.kind == "absent"}
    assert absent["without"] - absent["with"] == {"gradient_clip_norm"}
    assert not absent["without"] & {"lr_scheduler", "warmup_steps", "find_unused_parameters", "dataloader_workers"}


def test_a_timeout_in_an_object_of_arguments_is_a_timeout(tmp_path: Path) -> None:
    code = (
        "from datetime import timedelta\nfrom accelerate import Accelerator, InitProcessGroupKwargs\n"
        "HOURS = 2\nAccelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(hours=HOURS))])\n"
    )
    ws = made(tmp_path, {"train.py": code, "run.sh": "torchrun --nproc-per-node 2 train.py\n"})
    assert [s.value for s in read_settings(ws).asked("nccl_timeout")] == [7200]
    assert not [e for e in lint_settings(ws).evidence if e.key == "lint.ddp_timeout_default"]


def test_results_and_lists_to_be_filled_are_no_settings(tmp_path: Path) -> None:
    log = "{'train_runtime': 2.9, 'train_samples_per_second': 10.0, 'train_loss': 1.6, 'epoch': 2.0}\n"
    code = "import logging\nlogging.basicConfig(level=logging.INFO, format='x')\nstop = []\nstop_strings = []\n"
    ws = made(tmp_path, {"train.log": log, "train.py": code})
    assert not [e for e in tell(ws).evidence if e.key.startswith("settings.")]


def test_the_optimizer_of_another_stage_is_not_that_of_the_trainer(tmp_path: Path) -> None:
    code = (
        "import torch\nfrom transformers import Trainer, TrainingArguments\n\n\ndef warm(model):\n"
        "    torch.optim.AdamW(model.parameters(), lr=4e-3)\n\n\nwarm(None)\n"
        "Trainer(args=TrainingArguments(learning_rate=1e-5)).train()\n"
    )
    reading = read_settings(made(tmp_path, {"train.py": code}))
    assert [s.value for s in reading.asked("learning_rate")] == [1e-5]


def test_two_programs_have_settings_of_their_own(tmp_path: Path) -> None:
    option = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float, default={})\na = p.parse_args()\nprint('{} ready now', a.lr)\n"
    files = {
        "a.py": option.format("0.1", "alpha"),
        "b.py": option.format("0.2", "beta"),
        "run.sh": "python a.py > a.log\npython b.py --lr 0.3 > b.log\n",
        "a.log": "alpha ready now 0.1\n",
        "b.log": "beta ready now 0.3\n",
    }
    found = read_settings(made(tmp_path, files)).asked("learning_rate")
    assert sorted((s.value, s.file.name) for s in found) == [(0.1, "a.py"), (0.3, "run.sh")]


@pytest.mark.parametrize(
    "code",
    [
        "a = b\nb = a\nimport torch\ntorch.optim.AdamW([], lr=a)\n",
        "def f(x):\n    return f(x)\nimport torch\ntorch.optim.AdamW([], lr=f(1))\n",
        "class A:\n    b: 'A' = A()\nimport torch\ntorch.optim.AdamW([], lr=A().b.b.lr)\n",
        "x = " + "-" * 300 + "1\nimport torch\ntorch.optim.AdamW([], lr=x)\n",
        "import torch\nx = 10 ** 400\ny = x * x\ntorch.optim.AdamW([], lr=y ** y)\n",
        "import torch\nimport train\ntorch.optim.AdamW([], lr=train.train.train.rate)\n",
    ],
)
def test_circles_and_giants_end(tmp_path: Path, code: str) -> None:
    assert not read_settings(made(tmp_path, {"train.py": code})).asked("learning_rate") or "-" in code


def test_what_the_log_says_was_taken_stands_over_the_file(tmp_path: Path) -> None:
    files = {
        "train.py": "max_iters = 10\nbatch_size = 4\nexec(open('configurator.py').read())\nprint(f'iter {max_iters} reached')\n",
        "configurator.py": "import sys\nprint('nothing')\n",
        "train.log": "Overriding: max_iters = 30\niter 30 reached\n",
    }
    reading = read_settings(made(tmp_path, files))
    assert [s.value for s in reading.asked("micro_batch_size")] == [4]
    assert not reading.asked("max_steps") and [s.value for s in reading.used("max_steps")] == [30]


def test_records_of_a_logger_are_no_config(tmp_path: Path) -> None:
    row = '{"time": "2026-01-01", "level": "INFO", "msg": "started", "lr": 0.1}\n'
    assert not read_settings(made(tmp_path, {"debug.log": row * 3})).all


@pytest.mark.parametrize(("command", "told"), [("python train.py > train.log\n", [0.1]), ("", [])])
def test_a_default_holds_only_where_it_is_known_how_the_program_was_started(
    tmp_path: Path, command: str, told: list[float]
) -> None:
    files = {
        "train.py": "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', default=0.1)\n"
        "args = p.parse_args()\nprint(f'learning begins now at {args.lr}')\n",
        "other.py": "print('something else is begun')\n",
        "train.log": "learning begins now at 0.3\n",
        "run.sh": command or "echo nothing\n",
    }
    reading = read_settings(made(tmp_path, files))
    assert [s.value for s in reading.asked("learning_rate")] == told
    assert bool([s for s in reading.open if s.name == "learning_rate"]) is not bool(told)


def test_modules_that_import_from_one_another_in_a_circle_cost_nothing(tmp_path: Path) -> None:
    files = {
        "train.py": "import torch\nfrom pkg import RATE\nopt = torch.optim.AdamW([], lr=RATE)\nprint(f'step {1} loss {2.0}')\n",
        "pkg/__init__.py": "from pkg.one import RATE\nfrom .two import *\n",
        "pkg/one.py": "from pkg.two import RATE\n",
        "pkg/two.py": "from pkg import RATE\nfrom pkg.one import RATE as AGAIN\n",
        "train.log": "step 1 loss 2.0\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert not read_settings(Workspace([tmp_path])).asked("learning_rate")


@pytest.mark.parametrize(
    ("switch", "told"),
    [
        ("amp: false\n", []),
        ("amp: true\n", ["fp16"]),
        ("", ["fp16"]),
        ("use_amp: false\n", []),
        ("fp16: false\n", ["fp16"]),
    ],
)
def test_what_a_switch_beside_it_turns_off_has_no_effect(tmp_path: Path, switch: str, told: list[str]) -> None:
    reading = read_settings(made(tmp_path, {"config.yaml": f"{switch}amp_dtype: float16\nlr: 0.1\nbatch_size: 4\n"}))
    assert [s.value for s in reading.asked("precision")] == told


def test_lists_of_what_may_be_chosen_and_tables_of_a_module_are_no_settings(tmp_path: Path) -> None:
    code = (
        "SHARDING_STRATEGY = ['FULL_SHARD', 'NO_SHARD']\nOPTIMIZER_NAME = 'optimizer.pt'\n"
        "_LOADER_KWARGS = {'num_workers': 0, 'pin_memory': False}\nDEFAULTS = {'learning_rate': 0.1}\nBATCH_SIZE = 4\n"
    )
    assert {s.key for s in read_settings(made(tmp_path, {"train.py": code})).all} == {"learning_rate", "BATCH_SIZE"}
