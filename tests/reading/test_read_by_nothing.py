"""A setting of the run is one that something which ran reads: the rest is no setting, however it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.settings import read_settings
from traindoctor.agent.tools.settings.settings_tools import lint_settings

HEAD = "import argparse, json, dataclasses, yaml\nfrom dataclasses import dataclass\nimport torch\n"
PARSER = """\
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--lora-rank", dest="lora_rank", type=int, default=16)
p.add_argument("--lora", action="store_true")
a = p.parse_args()
"""
FIELDS = (
    "@dataclass\nclass Config:\n    lr: float = 0.1\n    lora_rank: int = 16\n    lora: bool = False\na = Config()\n"
)
LOOP = """
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=a.lr)
for _ in range(10):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
"""
ADAPTER = "def adapt(model):\n    return LoraConfig(r=a.lora_rank)\n"
SH = {"run.sh": "python train.py\n"}
# Nothing that runs reads the rank.
UNREAD = {
    "an option": HEAD + PARSER + LOOP,
    "a field": HEAD + FIELDS + LOOP,
    "a branch that is not taken": HEAD
    + "from peft import LoraConfig\n"
    + PARSER
    + "if a.lora:\n    LoraConfig(r=a.lora_rank)\n"
    + LOOP,
    "a function that nobody calls": HEAD + "from peft import LoraConfig\n" + PARSER + ADAPTER + LOOP,
    "only printed as a whole": HEAD + FIELDS + "print(json.dumps(dataclasses.asdict(a)))\n" + LOOP,
    "fields that the command line fills": HEAD
    + FIELDS.replace("a = Config()\n", "")
    + "from transformers import HfArgumentParser, TrainingArguments\na, t = HfArgumentParser((Config, TrainingArguments)).parse_args_into_dataclasses()\n"
    + LOOP,
}
# Something does, by its name or as a whole.
READ = {
    "by its name": HEAD + "from peft import LoraConfig\n" + PARSER + "LoraConfig(r=a.lora_rank)\n" + LOOP,
    "by a text": HEAD + PARSER + "print(getattr(a, 'lora_rank'))\n" + LOOP,
    "by a name that is put together": HEAD + "kind = torch.ones(1)\n" + PARSER.replace("a =", "args = a =") + "r = getattr(args, f'{kind}_rank')\n" + LOOP,
    "spread over a library's call": HEAD + "from peft import LoraConfig\n" + PARSER + "LoraConfig(**vars(a))\n" + LOOP,
    "by a library that is given all": HEAD + "import deepspeed\n" + PARSER + "deepspeed.initialize(args=a)\n" + LOOP,
    "by the library whose class it extends": HEAD + "from transformers import TrainingArguments\n" + FIELDS.replace("class Config:", "class Config(TrainingArguments):").replace("False", "True") + LOOP,
    "by a function that is called": HEAD + "from peft import LoraConfig\n" + PARSER + ADAPTER + LOOP + "adapt(model)\n",
    "an excerpt that reads nothing at all": "p.add_argument('--lr', default=0.1)\np.add_argument('--lora-rank', dest='lora_rank', default=16)\n",
}  # fmt: skip


def look(folder: Path, files: dict[str, str]) -> Workspace:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return Workspace([folder])


@pytest.mark.parametrize("way", UNREAD)
def test_a_default_that_nothing_reads_is_no_setting(tmp_path, way):
    reading = read_settings(look(tmp_path, {"train.py": UNREAD[way], **SH}))
    assert not reading.asked("lora_rank")
    assert [s.value for s in reading.asked("learning_rate")] == [0.1]


@pytest.mark.parametrize("way", READ)
def test_a_default_that_is_read_is_one(tmp_path, way):
    assert read_settings(look(tmp_path, {"train.py": READ[way], **SH})).asked("lora_rank")


LOADS = HEAD + "with open('conf/run.yaml') as f:\n    c = yaml.safe_load(f)\n"
YAML = "lr: 0.1\nsteps: 10\nlog_every: 5\nprecision: bf16\n"


def test_a_key_of_a_config_that_nothing_reads_is_no_setting(tmp_path):
    loop = LOOP.replace("a.lr", "c['lr']").replace("10", "c['steps']")
    reading = read_settings(look(tmp_path, {"train.py": LOADS + loop, "conf/run.yaml": YAML, **SH}))
    assert {s.key for s in reading.all if s.file.name == "conf/run.yaml"} == {"lr", "steps"}
    assert {s.key for s in reading.unread} == {"log_every", "precision"}


@pytest.mark.parametrize("how", ["train(**c)", "import lib\nlib.train(**c)", "import lib\nlib.train(c)"])
def test_keys_that_go_over_as_a_whole_are_settings(tmp_path, how):
    own = "def train(lr, steps, log_every, precision):\n    pass\n"
    reading = read_settings(look(tmp_path, {"train.py": LOADS + own + how + "\n", "conf/run.yaml": YAML, **SH}))
    assert {s.key for s in reading.all if s.file.name == "conf/run.yaml"} == {"lr", "steps", "log_every", "precision"}


def test_a_config_none_of_whose_keys_the_program_reads_is_a_librarys(tmp_path):
    files = {"train.py": LOADS + LOOP.replace("a.lr", "0.1"), "conf/run.yaml": YAML, **SH}
    assert len(read_settings(look(tmp_path, files)).asked("precision")) == 1


def test_a_setting_under_a_name_that_nothing_reads_is_told_with_the_one_that_is_read(tmp_path):
    filled = LOADS + FIELDS
    text = YAML.replace("lr:", "learning_rate:")
    found = lint_settings(
        look(tmp_path, {"train.py": filled + LOOP + "print(c['steps'])\n", "conf/run.yaml": text, **SH})
    )
    cited = {(e.file, e.line) for e in found.evidence if e.key == "lint.ignored_setting"}
    assert cited == {("conf/run.yaml", 1), ("train.py", 8)}


def test_what_a_run_kept_of_its_config_is_held_to_the_same(tmp_path):
    code = LOADS + "print('rate', c['lr'])\n" + LOOP.replace("a.lr", "c['lr']").replace("10", "c['steps']")
    kept = '{\n"lr": 0.1,\n"steps": 10,\n"log_every": 5\n}\n'
    files = {"train.py": code, "conf/run.yaml": YAML, "out/run_config.json": kept, "out/train.log": "rate 0.1\n"}
    files["run.sh"] = "python train.py > out/train.log\n"
    reading = read_settings(look(tmp_path, files))
    assert {s.key for s in reading.all if s.file.name == "out/run_config.json"} == {"lr", "steps"}


def test_an_option_that_is_given_and_that_nothing_reads_is_told_as_such(tmp_path):
    files = {"train.py": UNREAD["an option"], "run.sh": "python train.py --lr 0.1 --lora-rank 4\n"}
    ws = look(tmp_path, files)
    assert not read_settings(ws).asked("lora_rank")
    assert {(e.file, e.line) for e in lint_settings(ws).evidence if e.key == "lint.ignored_setting"} == {("run.sh", 1)}
    (tmp_path / "train.py").write_text(READ["by a function that is called"], encoding="utf-8")
    assert read_settings(Workspace([tmp_path])).asked("lora_rank")
    (tmp_path / "train.py").write_text("from swift import main\nmain()\n", encoding="utf-8")  # a library's own option
    assert read_settings(Workspace([tmp_path])).asked("lora_rank")
