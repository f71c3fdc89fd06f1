"""Files that lie beside a run without being of it: other runs, tables and weights that came along, other programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace

from tests.reading.test_what_ran import made, parts

TRAIN = "print('the letters are trained')\nfor n in range(2):\n    print(f'step {n} loss {n / 3:.3f}')\n"
LOG = "the letters are trained\nstep 0 loss 0.000\nstep 1 loss 0.333\n"


@pytest.mark.parametrize(
    ("question", "aside"),
    [
        ("Why does wide.log look so bad?", {"logs/narrow.log", "logs/deep.log"}),
        ("Why does wide.log do worse than narrow.log?", {"logs/deep.log"}),
        ("wide.log is like that of run_narrow.sh, why?", {"logs/deep.log"}),
        ("Why is everything worse than narrow.log?", set()),
        ("Is wide.log worse than the others?", set()),
        ("Why does the loss not fall?", set()),
        ("Which one should I take, wide.log or deep.log?", set()),
    ],
)
def test_logs_of_runs_that_the_question_does_not_name_are_left_aside(tmp_path, question, aside) -> None:
    files = {f"logs/{name}.log": LOG for name in ("wide", "narrow", "deep")} | {"train.py": TRAIN}
    found = parts(made(tmp_path, files), question)
    assert {n for n, part in found.items() if part == "bystander"} == aside


def test_tables_and_weights_of_which_nothing_that_ran_speaks_came_with_the_project(tmp_path) -> None:
    files = {
        "train.py": TRAIN + "open('tables/prices.csv')\n",
        "train.log": LOG,
        "tables/prices.csv": "a,b\n1,2\n3,4\n",
        "benchmarks/imagenet.csv": "model,top1\nresnet,76.1\nvit,81.2\n",
        "curves/Hopper_seed0.npy": "",
        "out/metrics.csv": "step,loss\n0,1.0\n1,0.5\n",
        "README.md": "about\n", "LICENSE": "Permission\n", "setup.py": "from setuptools import setup\nsetup()\n",
    }  # fmt: skip
    found = parts(made(tmp_path, files))
    assert found["benchmarks/imagenet.csv"] == "bystander" == found["curves/Hopper_seed0.npy"]
    assert "bystander" not in (found["tables/prices.csv"], found["out/metrics.csv"])


def test_where_it_is_not_known_which_of_several_programs_ran_none_of_them_tells_anything(tmp_path) -> None:
    programs = {f"gans/{n}.py": f"print('the {n} begins now')\nlr = 0.1\n" for n in ("acgan", "dcgan", "wgan", "lsgan")}
    ws = Workspace([made(tmp_path, {**programs, "job.log": "Epoch 3 of something else 0.31\n", "README.md": "GANs\n"})])
    assert not ws.ran.programs
    assert {ws.ran.why(f) for f in ws.everything if f.name in programs} == {
        "which of several programs ran is not known"
    }
    assert not [f for f in ws.files if f.name in programs]


def test_sources_of_other_languages_and_templates_are_beside_the_run(tmp_path) -> None:
    files = {"train.py": TRAIN, "train.log": LOG, "lib/chat.jinja": "{{ lr }}\n", "src/main.rs": "let lr = 3;\n",
             "hfdocs/page.mdx": "`--lr 9`\n", "hfdocs/toctree.yml": "lr: 9\n", "LICENSE": "Permission\n", "README.md": "a\n"}  # fmt: skip
    found = parts(made(tmp_path, files))
    assert {found[n] for n in ("lib/chat.jinja", "src/main.rs", "hfdocs/page.mdx", "hfdocs/toctree.yml")} == {
        "bystander"
    }


def test_a_copy_that_is_called_old_did_not_print_the_log(tmp_path) -> None:
    ws = Workspace([made(tmp_path, {"train.py": TRAIN, "train_old.py": TRAIN, "job.txt": LOG})])
    assert [p.file.name for p in ws.ran.programs] == ["train.py"]


@pytest.mark.parametrize(
    ("begins", "command", "value"),
    [
        ("import fire\ndef main(lr=0.1):\n    train(lr)\nfire.Fire(main)\n", "--lr 0.3", 0.3),
        ("import fire\ndef main(lr=0.1):\n    train(lr)\nfire.Fire(main)\n", "--lr=0.3", 0.3),
        ("import typer\ndef main(lr: float = 0.1):\n    train(lr)\ntyper.run(main)\n", "--lr 0.3", 0.3),
        ("import fire\ndef main(lr=0.1):\n    train(lr)\nfire.Fire(main)\n", "", 0.1),
    ],
)
def test_parameters_that_a_library_fills_from_the_command(
    tmp_path: Path, begins: str, command: str, value: float
) -> None:
    from traindoctor.agent.reading.settings.settings import read_settings

    source = (
        "import torch\ndef train(lr):\n    torch.optim.AdamW([], lr=lr)\n    print('the letters are trained')\n"
        + begins
    )
    files = {"train.py": source, "run.sh": f"python train.py {command} > train.log\n", "train.log": LOG}
    found = read_settings(Workspace([made(tmp_path, files)])).asked("learning_rate")
    assert {s.value for s in found} == {value}
