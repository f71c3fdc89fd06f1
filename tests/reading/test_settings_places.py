"""Where a value stands: line, column and width of every leaf that a change could be written to."""

from __future__ import annotations

import pytest
from traindoctor.agent.reading.settings.forms.settings_data import read_json, read_yaml
from traindoctor.agent.reading.settings.forms.settings_files import read_env, read_ini, read_toml
from traindoctor.agent.reading.settings.forms.settings_python import read_python
from traindoctor.agent.reading.settings.forms.settings_shell import read_shell
from traindoctor.agent.reading.settings.settings_map import plain


def places(reader, text):
    """Key -> the source of its value, as the leaf says where it stands."""
    rows = plain(text).split("\n")
    return {
        leaf.key: rows[leaf.line - 1][leaf.column : leaf.column + leaf.width] for leaf in reader(plain(text)).leaves
    }


TOML = (
    'lr = 1e-4 # c\r\n[o]\r\na = {b = 1, c = {d = "x, y", e = [1, 2]}, f = true} # x\r\ns = "a # b"\nm = [\n 1,\n 2]\n'
)
SHELL = r"""#SBATCH --nodes=2  # two
export NCCL_DEBUG=INFO A="x y"
LR=${LR:-3e-4}
ARGS=(
    --lr $LR          # the rate
    --target q_proj v_proj
    --bf16
)
MODEL_ARGS="
    --num-layers 24 \
    --seq-length=4096
"
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2 \
    train.py --batch-size "4" --epochs \
    3 ++model.dim=64 'a.b=[1,2]' x.y="q r" "${ARGS[@]}"
cat > ds.yaml <<EOT
zero:
  stage: 2
EOT
bash -c 'deepspeed --num_gpus 8 a.py'
"""
PYTHON = """é = "ü"; lr = 1e-4
args = TrainingArguments("ü", learning_rate=lr, seed=2*50,
    betas=(0.9,
           0.95))
init_process_group(timeout=timedelta(minutes=30))
class A:
    wd: float = field(default=0.1, metadata={"help": "ü"})
os.environ["X"] = "1"
"""


@pytest.mark.parametrize(
    ("reader", "text", "expected"),
    [
        (read_toml, TOML, {"lr": "1e-4", "o.a.b": "1", "o.a.c.d": '"x, y"', "o.a.c.e": "[1, 2]", "o.a.f": "true", "o.s": '"a # b"', "o.m": ""}),
        (read_env, 'export A="x y" # c\r\nB=1 # d\r\nE= 3\n', {"A": '"x y"', "B": "1", "E": "3"}),
        (read_ini, "[n]\r\na=64 ; x\r\nb: 0.1\nc =  x y\r\n", {"n.a": "64", "n.b": "0.1", "n.c": "x y"}),
        (read_yaml, "a: &x [1, 2]\nb: 1e-4 # c\nc: 'x'\nd: |\n  e\n", {"a": "&x [1, 2]", "b": "1e-4", "c": "'x'", "d": ""}),
        (read_json, '{"a": [1, 2], "b": "x", "c": [\n1]}', {"a": "[1, 2]", "b": '"x"', "c": "["}),
        (read_shell, SHELL, {
            "nodes": "2", "NCCL_DEBUG": "INFO", "A": '"x y"', "LR": "${LR:-3e-4}", "lr": "$LR", "target": "q_proj v_proj",
            "bf16": "--bf16", "num-layers": "24", "seq-length": "4096", "CUDA_VISIBLE_DEVICES": "0,1", "nproc_per_node": "2",
            "batch-size": '"4"', "epochs": "", "model.dim": "64", "a.b": "[1,2]", "x.y": '"q r"', "zero.stage": "2", "num_gpus": "8",
        }),
        (read_python, PYTHON, {
            "é": '"ü"', "lr": "1e-4", "learning_rate": "lr", "seed": "2*50", "betas": "", "timeout": "timedelta(minutes=30)",
            "wd": "0.1", "X": '"1"',
        }),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)  # fmt: skip
def test_places(reader, text, expected):
    got = places(reader, text)
    assert {key: got[key] for key in expected} == expected


def test_json_within_quotes_of_a_command_has_its_place():
    text = """ray job submit --runtime-env-json='{"env_vars": {"NCCL_DEBUG": "WARN"}}' -- python a.py\n"""
    assert places(read_shell, text)["NCCL_DEBUG"] == '"WARN"'
    escaped = 'RUNTIME="{\\"env_vars\\": {\\"NCCL_DEBUG\\": \\"WARN\\"}}"\n'
    assert places(read_shell, escaped)["NCCL_DEBUG"] == '\\"WARN\\"'


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "#SBATCH --nodes=3 --ntasks=24 --output=logs/%x-%j.out",
            {"nodes": 3, "ntasks": 24, "output": "logs/%x-%j.out"},
        ),
        ("#SBATCH -N 2 -n8 -t 1-00:00:00 # two nodes", {"nodes": 2, "ntasks": 8, "time": "1-00:00:00"}),
        ("#SBATCH --exclusive --mem 64G", {"exclusive": True, "mem": "64G"}),
        (
            "#PBS -N pretrain -l nodes=2:ppn=8,walltime=24:00:00",
            {"N": "pretrain", "l": "nodes=2:ppn=8,walltime=24:00:00"},
        ),
        ('#BSUB -n 8 -R "rusage[mem=4GB] span[hosts=1]"', {"ntasks": 8, "R": '"rusage[mem=4GB] span[hosts=1]"'}),
        ("#SBATCH, as the manual says, takes -N 2", {}),
    ],
)
def test_a_line_of_a_schedulers_header_may_hold_several_options(line: str, expected: dict[str, object]) -> None:
    found = [
        leaf for leaf in read_shell(f"#!/bin/bash\n{line}\nsrun python train.py\n").leaves if leaf.style == "header"
    ]
    assert {leaf.key: leaf.value for leaf in found} == expected
    for leaf in (leaf for leaf in found if leaf.width):
        assert str(leaf.value) == line[leaf.column : leaf.column + leaf.width]
