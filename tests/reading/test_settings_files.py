"""Readers of settings: right keys, right values, right lines, whatever the format; never an exception."""

from __future__ import annotations

import json
import textwrap
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.settings.forms.settings_data import read_json, read_yaml
from traindoctor.agent.reading.settings.forms.settings_files import read_env, read_ini, read_note, read_table, read_toml
from traindoctor.agent.reading.settings.forms.settings_python import read_python
from traindoctor.agent.reading.settings.forms.settings_shell import read_shell
from traindoctor.agent.reading.settings.settings_map import LEAVES, plain

READERS = [read_yaml, read_json, read_toml, read_ini, read_env, read_note, read_python, read_shell, read_table]


def found(sheet):
    """(key, value, line) of every leaf."""
    return [(leaf.key, leaf.value, leaf.line) for leaf in sheet.leaves]


def test_yaml_nests_merges_and_keeps_lines():
    text = textwrap.dedent("""\
        base: &base
          lr: 1e-5   # small
          betas: [0.9, 0.95]
        train:
          <<: *base
          bf16: true
          name: "true"
          modules:
            - q_proj
            - v_proj
    """)
    got = found(read_yaml(text))
    assert ("base.lr", 1e-5, 2) in got
    assert ("train.lr", 1e-5, 2) in got
    assert ("base.betas", [0.9, 0.95], 3) in got
    assert ("train.bf16", True, 6) in got
    assert ("train.name", "true", 7) in got
    assert ("train.modules", ["q_proj", "v_proj"], 8) in got


def test_yaml_tells_duplicate_keys_and_reads_on_after_an_error():
    sheet = read_yaml("a: 1\nb: 2\na: 3\n")
    assert sheet.duplicates == [("a", 1, 3)]
    broken = read_yaml("lr: 1e-4\nbad: [1, 2\nwarmup_steps: 10\nepochs: 3\n")
    assert broken.problems
    assert ("lr", 1e-4, 1) in found(broken)
    assert ("epochs", 3, 4) in found(broken)


def test_json_with_nan_comments_and_commas():
    text = '{\n  // stage\n  "zero_optimization": {"stage": 3,},\n  "scale": NaN,\n  "lr": "auto", "a": 1, "a": 2\n}'
    sheet = read_json(text)
    got = {leaf.key: (leaf.value, leaf.line) for leaf in sheet.leaves}
    assert got["zero_optimization.stage"] == (3, 3)
    assert got["scale"][0] != got["scale"][0]
    assert got["lr"] == ("auto", 5)
    assert sheet.duplicates == [("a", 5, 5)]


def test_toml_sections_and_lists_over_lines():
    text = '[training]\nseq_len = 8_192 # tokens\n[parallelism]\nmesh = [\n  2,\n  4,\n]\nname = "a # b"\n'
    assert found(read_toml(text)) == [
        ("training.seq_len", 8192, 2), ("parallelism.mesh", [2, 4], 4), ("parallelism.name", "a # b", 8),
    ]  # fmt: skip


def test_env_and_ini():
    assert found(read_env("export A=1\n# B=2\nC='x y' \n")) == [("A", 1, 1), ("C", "x y", 3)]
    assert found(read_ini("[net]\nbatch=64\n; c\nlr: 0.1\n")) == [("net.batch", 64, 2), ("net.lr", 0.1, 4)]


SCRIPT = r"""#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gres=gpu:8
export NCCL_DEBUG=INFO
LR=${LR:-3e-4}
ARGS=(
    --lr $LR          # the rate
    --target q_proj v_proj
    --bf16
)
CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=2 \
    train.py --batch-size 4 ++model.dim=64 "${ARGS[@]}"
cat > ds.json <<EOT
{"zero_optimization": {"stage": 2}}
EOT
"""


def test_shell_follows_continuations_arrays_variables_and_heredocs():
    got = {(leaf.key, leaf.scope): (leaf.value, leaf.line) for leaf in read_shell(SCRIPT).leaves}
    assert got["nodes", "slurm"] == (2, 2)
    assert got["gres", "slurm"] == ("gpu:8", 3)
    assert got["NCCL_DEBUG", "env"] == ("INFO", 4)
    assert got["lr", ""] == (3e-4, 7)
    assert got["target", ""] == (["q_proj", "v_proj"], 8)
    assert got["bf16", ""] == (True, 9)
    assert got["CUDA_VISIBLE_DEVICES", "env"] == ("0,1", 11)
    assert got["nproc_per_node", "launcher"] == (2, 11)
    assert got["batch-size", ""] == (4, 12)
    assert got["model.dim", ""] == (64, 12)
    assert got["zero_optimization.stage", ""] == (2, 14)


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("python -m torch.distributed.launch --nproc_per_node=4 a.py --fp16 True", "fp16", True),
        ("ray job submit --address=x -- python3 train.py --colocate --n 8", "colocate", True),
        ("accelerate launch --mixed_precision=fp16 a.py --lr=1e-4", "mixed_precision", "fp16"),
        ("srun -N 2 -n 16 python a.py", "ntasks", 16),
        ("bash -c 'deepspeed --num_gpus 8 a.py --deepspeed ds.json'", "num_gpus", 8),
        ('ARGS="--num-layers 24 --tp 2"', "num-layers", 24),
        (
            """ray job submit --runtime-env-json='{"env_vars": {"NCCL_DEBUG": "WARN"}}' -- python a.py""",
            "NCCL_DEBUG",
            "WARN",
        ),
        ("verl x=1 trainer.n_gpus_per_node=8", "trainer.n_gpus_per_node", 8),
        ("python a.py --router none --eps -1", "router", "none"),
        ("python a.py --eps -1", "eps", -1),
    ],
)
def test_command_lines(line, key, value):
    assert (key, value, 1) in found(read_shell(line))


def test_shell_passes_over_programs_that_set_nothing():
    assert found(read_shell("nvidia-smi --query-gpu=name\ngrep -i xid log\nmkdir -p out\n")) == []


def test_python_calls_defaults_and_constants():
    text = textwrap.dedent("""\
        LR = 2e-4
        args = TrainingArguments(
            learning_rate=LR, per_device_train_batch_size=4,
            warmup_steps=2 * 50,
        )
        parser.add_argument("--device", default="cuda:0")
        dist.init_process_group("nccl", timeout=timedelta(minutes=30))
        os.environ["NCCL_P2P_DISABLE"] = "1"
        ds = {"zero_optimization": {"stage": 3}}
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    """)
    got = found(read_python(text))
    for expected in [
        ("learning_rate", 2e-4, 3), ("per_device_train_batch_size", 4, 3), ("warmup_steps", 100, 4), ("device", "cuda:0", 6),
        ("timeout", 1800.0, 7), ("NCCL_P2P_DISABLE", "1", 8), ("zero_optimization.stage", 3, 9), ("max_grad_norm", 0.5, 10),
    ]:  # fmt: skip
        assert expected in got


def test_python_that_does_not_parse_still_tells_plain_lines():
    sheet = read_python("def f(:\n    learning_rate = 1e-4,\n")
    assert sheet.problems
    assert ("learning_rate", 1e-4, 2) in found(sheet)


def test_python_cut_out_of_a_class_is_read():
    text = "    def loader(self):\n        return DataLoader(self.data, batch_size=8, num_workers=3)\n"
    sheet = read_python(text)
    assert not sheet.problems
    assert ("num_workers", 3, 2) in found(sheet)


def test_table_rows_are_variants_and_series_are_not():
    rows = read_table("gpus,lr,loss\n4,1e-4,2.1\n8,1e-4,2.0\n")
    assert ("lr", 1e-4, 3) in found(rows)
    assert {leaf.group for leaf in rows.leaves} == {"row 1", "row 2"}
    assert read_table("step,loss\n1,2\n2,1\n").leaves == []


HOSTILE = {
    "nameless array": "=( a )\n== (b)\na= (c)\n",
    "brackets": "[" * 100_000,
    "braces": '{"a":' * 50_000,
    "digits": '{"x": ' + "9" * 6000 + "}",
    "yaml digits": "x: " + "9" * 6000,
    "bomb": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{c}: &{c} [" + ",".join([f"*{p}"] * 9) + "]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)),
    "map bomb": "a: &a {k: v, l: v}\n"
    + "".join(
        f"{c}: &{c} {{x: *{p}, y: *{p}, z: *{p}}}\n" for p, c in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
    ),
    "self": "&a [*a, *a]",
    "quotes": "'" * 20_000 + '"' * 20_001,
    "heredoc": "cat <<EOF\n" * 3000,
    "dollar": "A=${A:-$A}\npython a.py --x $A\n" + "${" * 5000,
    "parens": "f(" * 5000,
    "long line": "a" * 2_000_000,
    "flags": "python a.py " + "--x 1 " * 60_000,
    "keys": "\n".join(f"k{i}: {i}" for i in range(60_000)),
    "columns": ",".join(f"c{i}" for i in range(200_000)) + "\n1\n",
    "controls": "\x00\x07a: \x1b[31m1\n\u2028b: 2\r\rc: 3",
    "equals": "= " * 50_000,
    "backslashes": "\\\n" * 50_000,
    "dots": "a " + "." * 100_000,
}


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.__name__)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_read_in_bounded_time_and_size(reader, name):
    began = time.perf_counter()
    sheet = reader(plain(HOSTILE[name]))
    assert time.perf_counter() - began < 10
    assert len(sheet.leaves) <= LEAVES
    assert all(len(str(leaf.value)) < 100_000 for leaf in sheet.leaves)


@pytest.mark.parametrize("reader", READERS, ids=lambda r: r.__name__)
@settings(max_examples=60, deadline=None)
@given(text=st.text(alphabet=st.sampled_from("ab1:=,-# \n\t'\"\\{}[]()$&*|<>!%@.~+0e/"), max_size=200))
def test_no_reader_raises(reader, text):
    lines = text.count("\n") + 1
    assert all(1 <= leaf.line <= lines for leaf in reader(plain(text)).leaves)


KEYS = st.from_regex(r"[a-z][a-z_]{0,10}", fullmatch=True).filter(
    lambda k: k not in ("no", "on", "off", "yes", "y", "n", "null", "true", "false")
)
VALUES = st.one_of(st.integers(-(10**9), 10**9), st.booleans(), st.floats(-1e6, 1e6).map(lambda f: round(f, 4)))
TREES = st.dictionaries(
    KEYS, st.one_of(VALUES, st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)), min_size=1, max_size=8
)


def _flat(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@settings(max_examples=80, deadline=None)
@given(TREES)
def test_yaml_and_json_agree_with_their_libraries(tree):
    for text, sheet in (
        ((t := yaml.safe_dump(tree)), read_yaml(t)),
        ((t := json.dumps(tree, indent=1)), read_json(t)),
    ):
        rows = text.split("\n")
        assert dict(_flat(tree)) == {leaf.key: leaf.value for leaf in sheet.leaves}
        for leaf in sheet.leaves:
            assert leaf.key.rsplit(".", 1)[-1] in rows[leaf.line - 1]
            written = rows[leaf.line - 1][leaf.column : leaf.column + leaf.width]
            assert json.loads(written) == leaf.value if text[0] == "{" else yaml.safe_load(written) == leaf.value


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=12))
def test_flags_stand_on_their_lines(pairs):
    script = "python train.py \\\n" + " \\\n".join(f"  --{k} {v}" for k, v in pairs)
    got = [(leaf.key, leaf.value, leaf.line) for leaf in read_shell(script).leaves if leaf.style == "flag"]
    assert got == [(k, v, i) for i, (k, v) in enumerate(pairs, 2)]


SCRAPS = [
    "{",
    "[",
    '"',
    "'",
    "\\\n",
    "&a ",
    "*a",
    "<<EOF\n",
    "$(",
    "${",
    "`",
    "(",
    ")",
    ": ",
    "- ",
    "\n",
    "| \n",
    "%",
    "#",
    "=(",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SCRIPT)), st.sampled_from(SCRAPS), st.integers(0, 15)), max_size=12))
def test_a_damaged_script_is_read_by_every_reader(edits):
    text = SCRIPT
    for at, scrap, cut in edits:
        text = text[:at] + scrap + text[at + cut :]
    for reader in READERS:
        assert all(1 <= leaf.line <= text.count("\n") + 1 for leaf in reader(plain(text)).leaves)
