"""Which lines came to run: by what was printed of the arguments, where the failure was, what is imported and used."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from traindoctor.agent.reading.code.conditions import NO, PERHAPS, SURELY, UNTOLD
from traindoctor.agent.reading.code.project import code_project, reached_settings
from traindoctor.agent.reading.run.program.statements import Printed, statements
from traindoctor.agent.reading.run.workspace import Workspace

from tests.reading.test_what_ran import made


def reached(folder: Path, files: dict[str, str], *marks: str) -> list[int]:
    """How surely the lines ran that hold these marks."""
    ws = Workspace([made(folder, files)])
    run = code_project(ws)[0].run
    return [
        next(run.reached(name, n) for name, text in files.items() for n, row in enumerate(text.split("\n"), 1) if mark in row)
        for mark in marks
    ]  # fmt: skip


OPTIONS = """import argparse, os
other = os.environ
p = argparse.ArgumentParser()
p.add_argument("--amp", type=bool, default=False)
p.add_argument("--gpus", default="")
p.add_argument("--kind", default="a")
args = p.parse_args()
{more}print(args)
if {test}:
    mark = 1
print("training of letters starts")
"""
SHOWN = "Namespace(amp={amp}, gpus='{gpus}', kind='{kind}')\ntraining of letters starts\n"


@pytest.mark.parametrize(
    ("test", "values", "state"),
    [
        ("args.amp", {}, NO),
        ("args.amp", {"amp": True}, SURELY),
        ("not args.amp", {}, SURELY),
        ("args.gpus and args.amp", {"amp": True}, NO),
        ("args.gpus or args.amp", {"amp": True}, SURELY),
        ("args.kind == 'b'", {"kind": "b"}, SURELY),
        ("args.kind in ('b', 'c')", {}, NO),
        ("args.kind != 'a'", {}, NO),
        ("args.amp and os.path.exists('a')", {"amp": True}, UNTOLD),
        ("other.amp", {}, UNTOLD),
    ],
)
def test_arguments_that_the_run_printed_decide_branches(tmp_path, test, values, state) -> None:
    log = SHOWN.format(**({"amp": False, "gpus": "", "kind": "a"} | values))
    files = {"train.py": OPTIONS.format(test=test, more=""), "train.log": log}
    assert reached(tmp_path, files, "mark = 1") == [state]


def test_what_is_given_anew_after_the_print_is_not_known_by_it(tmp_path) -> None:
    log = SHOWN.format(amp=False, gpus="", kind="a")
    before = OPTIONS.format(test="args.amp", more="args.amp = bool(args.gpus)\n")
    assert reached(tmp_path / "before", {"train.py": before, "train.log": log}, "mark = 1") == [NO]
    after = OPTIONS.format(test="args.amp", more="").replace("if args.amp", "args.amp = bool(other)\nif args.amp")
    assert reached(tmp_path / "after", {"train.py": after, "train.log": log}, "mark = 1") == [UNTOLD]


@pytest.mark.parametrize(
    "between",
    [
        "args.amp = bool(other)\nprint(args.kind)\n",  # a print of one argument is none of all
        "setattr(args, 'amp', True)\n",
        "vars(args).update(other)\n",
        "args.__dict__.update(other)\n",
    ],
)
def test_ways_to_give_an_argument_anew(tmp_path, between) -> None:
    source = OPTIONS.format(test="args.amp", more="").replace("if args.amp", f"{between}if args.amp")
    log = SHOWN.format(amp=False, gpus="", kind="a")
    assert reached(tmp_path, {"train.py": source, "train.log": log}, "mark = 1") == [UNTOLD]


def test_the_config_of_a_model_is_not_what_was_printed_as_arguments(tmp_path) -> None:
    source = OPTIONS.format(test="config.amp", more="config = make(args)\n")
    source = source.replace(
        "import argparse, os\n", "import argparse, os\nfrom transformers import AutoConfig as make\n"
    )
    files = {"train.py": source, "train.log": SHOWN.format(amp=False, gpus="", kind="a")}
    assert reached(tmp_path / "other", files, "mark = 1") == [UNTOLD]
    files["train.py"] = source.replace("print(args)", "print(config)")
    assert reached(tmp_path / "printed", files, "mark = 1") == [NO]


@pytest.mark.parametrize(("test", "state"), [("args.amp and torch.cuda.is_available()", NO), ("args.amp", SURELY)])
def test_parts_of_a_test_are_decided_by_whatever_tells(tmp_path, test, state) -> None:
    source = OPTIONS.format(test=test, more="import torch\n").replace("training", "using device: cpu, training")
    log = SHOWN.format(amp=True, gpus="", kind="a").replace("training", "using device: cpu, training")
    assert reached(tmp_path, {"train.py": source, "train.log": log}, "mark = 1") == [state]


def test_runs_that_printed_different_arguments_decide_nothing(tmp_path) -> None:
    logs = {f"{n}.log": SHOWN.format(amp=n == "a", gpus="", kind="a") for n in ("a", "b")}
    assert reached(tmp_path, {"train.py": OPTIONS.format(test="args.amp", more=""), **logs}, "mark = 1") == [UNTOLD]


DIES = """from data import load
def fit(config):
    {before}rows = load(config)
    after = 1
    loader = batches(rows)
def batches(rows):
    return [called for called in rows]
def main():
    print("training of letters starts")
    fit({{}})
    done = 1
if __name__ == "__main__":
    main()
"""


def test_what_bodies_still_had_before_them_where_the_run_died_did_not_run(tmp_path) -> None:
    files = {"train.py": DIES.format(before=""), "data.py": "def load(c):\n    start = 1\n    raise OSError('gone')\n"}
    frames = "".join(f'  File "{f}", line {n}, in {w}\n' for f, n, w in
                     [("train.py", 13, "<module>"), ("train.py", 10, "main"), ("train.py", 3, "fit"), ("data.py", 3, "load")])  # fmt: skip
    log = "training of letters starts\nTraceback (most recent call last):\n" + frames + "OSError: gone\n"
    files["train.log"] = log
    assert reached(tmp_path / "a", files, "after = 1", "loader =", "called for", "done = 1") == [NO] * 4
    assert reached(tmp_path / "a", files, "start = 1", "rows = load", "fit({})") == [SURELY] * 3
    by_module = files | {
        "train.py": "import steps\n" + DIES.format(before=""),
        "steps.py": "import train\ntrain.fit({})\n",
    }
    by_module["train.log"] = (
        log.replace("line 13", "line 14").replace("line 10", "line 11").replace("line 3, in fit", "line 4, in fit")
    )
    assert NO not in reached(tmp_path / "e", by_module, "after = 1")
    looped = files | {"train.py": DIES.format(before="for _ in range(3): ")}
    assert reached(tmp_path / "b", looped, "done = 1") == [NO]
    twice = files | {"train.py": DIES.format(before="").replace("    fit({})", "    fit({}) or fit({})")}
    assert NO not in reached(tmp_path / "c", twice, "after = 1", "called for")
    assert NO not in reached(tmp_path / "d", files | {"second.log": "training of letters starts\n"}, "after = 1")


LIBRARY = {
    "train.py": "from lib import Trainer\nprint('training of letters starts')\nTrainer().fit()\n",
    "lib/__init__.py": "from .trainer import Trainer\n",
    "lib/trainer.py": (
        "import os\nfrom .plugins import Sharding, Scaling\n"
        "class Trainer:\n    def __init__(self):\n        self.scaling = Scaling()\n"
        "        self.sharding = Sharding() if os.environ.get('SHARD') else None\n    def fit(self):\n        return self\n"
    ),
    "lib/plugins.py": (
        "from dataclasses import dataclass\n@dataclass\nclass Sharding:\n    offload: bool = True\n"
        "@dataclass\nclass Scaling:\n    init_scale: float = 65536.0\n@dataclass\nclass Unused:\n    lr: float = 3.0\n"
    ),
    "train.log": "training of letters starts\n",
}


def test_fields_of_a_class_hold_as_far_as_the_class_is_used(tmp_path) -> None:
    assert reached(tmp_path, LIBRARY, "init_scale", "offload", "lr: float") == [SURELY, UNTOLD, NO]
    assert {s.key for s in reached_settings(Workspace([tmp_path])).all} == {"init_scale"}


@pytest.mark.parametrize(
    "use", ["HfArgumentParser((Args,))", "HfArgumentParser(Args)", "tyro.cli(Args)", "kinds = (Args,)\nHfArgumentParser(kinds)"]
)  # fmt: skip
def test_a_class_that_a_parser_fills_is_used_and_so_is_what_it_inherits_from(tmp_path, use) -> None:
    files = {
        "train.py": f"from lib.arguments import Args\nfrom transformers import HfArgumentParser\nimport tyro\n{use}\nprint('training of letters starts')\n",
        "lib/base.py": "class Base:\n    field: int = 1\n",
        "lib/arguments.py": "from .base import Base\nclass Args(Base):\n    own: int = 2\n",
        "lib/__init__.py": "",
        "train.log": "training of letters starts\n",
    }
    assert reached(tmp_path, files, "field:", "own:") == [SURELY, SURELY]


def test_a_module_runs_only_where_something_that_runs_imports_it(tmp_path) -> None:
    files = {
        "train.py": "import extra.good\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import extra.types\n"
        "def never():\n    import extra.bad\nprint('training of letters starts')\n",
        "extra/__init__.py": "",
        "extra/good.py": "good = 1\n",
        "extra/bad.py": "bad = 1\n",
        "extra/types.py": "types = 1\n",
        "train.log": "training of letters starts\n",
    }
    assert reached(tmp_path, files, "good = 1", "bad = 1", "types = 1") == [SURELY, NO, NO]


@pytest.mark.parametrize(
    ("test", "state"),
    [("torch.cuda.is_available()", NO), ("not torch.cuda.is_available()", SURELY), ("device.type == 'cuda'", NO)],
)
def test_on_a_run_on_the_cpu_no_branch_for_gpus_is_taken(tmp_path, test, state) -> None:
    source = f"import torch\nprint('using device: cpu')\ndevice = torch.device('cpu')\nif {test}:\n    mark = 1\nprint('training of letters starts')\n"
    files = {"train.py": source, "train.log": "using device: cpu\ntraining of letters starts\n"}
    assert reached(tmp_path / "cpu", files, "mark = 1") == [state]
    gpu = files | {
        "train.log": "using device: cuda\ntraining of letters starts\n",
        "train.py": source.replace("cpu", "cuda"),
    }
    assert reached(tmp_path / "gpu", gpu, "mark = 1")[0] in (UNTOLD, PERHAPS)


def test_a_percent_sign_that_is_printed_as_such_is_text() -> None:
    (found,) = statements(ast.parse("print('[Epoch %d, acc: %d%%] loss %f' % (e, a, l))"), "a.py")
    match = Printed([found]).of("[Epoch 3, acc: 60%] loss 1.25")
    assert match is not None and match.values == ("3", "60", "1.25")


def settings_of(folder: Path, files: dict[str, str]) -> dict[str, object]:
    found = reached_settings(Workspace([made(folder, files)])).all
    return {s.key: s.value for s in found if s.place.style != "program"}


def test_scripts_that_hand_anything_on_or_start_many_runs_tell_no_settings_of_one(tmp_path) -> None:
    source = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\np.add_argument('--seed', type=int)\nargs = p.parse_args()\nprint('training of letters starts')\nprint(args.lr, args.seed)\n"
    files = {"train.py": source, "train.log": "training of letters starts\n0.1 3\n"}
    assert settings_of(tmp_path / "one", files | {"run.sh": "python train.py --lr 0.1\n"}) == {"lr": 0.1}
    many = "".join(f"python train.py --lr 0.{n}\n" for n in range(1, 5))
    assert not settings_of(tmp_path / "many", files | {"run_experiments.sh": many})
    assert not settings_of(tmp_path / "any", files | {"run.sh": 'python train.py --lr 0.1 "$@"\n'})
