"""What ran in a folder, told from what its programs print, import and load; and what of it is a bystander."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.run.program.commands import of_log, of_record, of_script
from traindoctor.agent.reading.run.program.modules import Modules
from traindoctor.agent.reading.run.program.statements import Printed, statements
from traindoctor.agent.reading.run.workspace import Workspace

TRAIN = """
import argparse
from model import build
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="configs/base.yaml")
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()
print(f"config {args.config}")
for step in range(args.steps):
    print(f"step {step}: training loss {build(step):.4f}, time {1.5:.2f}ms")
"""
SAMPLE = """
from model import build
print("sampled text:", build(1))
"""
PROJECT = {
    "train.py": TRAIN,
    "sample.py": SAMPLE,
    "model.py": "def build(n):\n    return 1.0 / (n + 1)\n",
    "configs/base.yaml": "lr: 0.1\n",
    "configs/large.yaml": "lr: 9.0\n",
    "README.md": "Run `torchrun --nproc-per-node 8 train.py --config configs/large.yaml`\n",
    "LICENSE": "Permission is hereby granted\n",
    ".gitignore": "out/\n",
    "tests/test_model.py": "from model import build\n",
    "vendor/lib/helper.py": "import os\n",
    "data/prose.txt": "Resume that spirit when you were wont to say\nafter all the straggle\n",
    "bench.py": "from model import build\nfor n in range(3):\n    print('the benchmark took', build(n))\n",
}


def made(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    return folder


def printed_by(folder: Path, *command: str) -> str:
    return subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = made(tmp_path / "project", PROJECT)
    (folder / "train.log").write_text(printed_by(folder, "train.py"))
    return folder


def parts(folder: Path, question: str = "") -> dict[str, str]:
    ws = Workspace([folder], question=question)
    return {f.name: ws.ran.part(f) for f in ws.everything}


def test_the_program_that_printed_the_log_is_found_and_the_rest_stands_by(project: Path) -> None:
    ws = Workspace([project])
    (program,) = ws.ran.programs
    assert (program.file.name, program.logs) == ("train.py", ["train.log"])
    assert set(program.reached) == {"train.py", "model.py"}
    assert "configs/base.yaml" in program.configs
    found = parts(project)
    beside = {n for n, part in found.items() if part == "bystander"}
    assert beside == {
        "sample.py", "configs/large.yaml", "README.md", "LICENSE", ".gitignore", "tests/test_model.py",
        "vendor/lib/helper.py", "bench.py",
    }  # fmt: skip
    assert found["data/prose.txt"] == "data"
    assert not beside & {f.name for f in ws.files} and beside < {f.name for f in ws.everything}
    assert next(f.role for f in ws.files if f.name == "data/prose.txt") == "data"
    assert all(ws.ran.why(f) for f in ws.everything)


def test_a_config_given_on_the_command_line_replaces_the_default(project: Path) -> None:
    (project / "run.sh").write_text("python train.py --config configs/large.yaml > train.log\n")
    (project / "other.sh").write_text("python sample.py > sample.log\n")
    found = parts(project)
    assert found["configs/large.yaml"] == "config" and found["run.sh"] == "config"
    assert found["other.sh"] == "bystander"


def test_a_config_that_the_log_names_is_in_use(project: Path) -> None:
    (project / "train.log").write_text(printed_by(project, "train.py", "--config", "configs/large.yaml"))
    found = parts(project)
    assert (found["configs/large.yaml"], found["configs/base.yaml"]) == ("config", "bystander")


def test_a_config_beside_the_log_is_in_use_and_pages_and_references_of_tests_are_not(project: Path) -> None:
    (project / "train.py").write_text(
        TRAIN.replace("configs/base.yaml", "").replace('print(f"config {args.config}")', "")
    )
    log = (project / "train.log").read_text().split("\n", 1)[1]
    (project / "train.log").unlink()
    beside = {"desk/dpo.log": log, "desk/dpo.yaml": "lr: 0.2\n", "tests/references/dpo.json": '{"lr": 3}\n'}
    made(project, beside | {"lib/skills/SKILL.md": "    python train.py --lr 9\n", "notes.md": "my notes\n"})
    found = parts(project)
    assert found["desk/dpo.yaml"] == "config" and found["tests/references/dpo.json"] == "bystander"
    assert found["lib/skills/SKILL.md"] == "bystander" and found["notes.md"] == "unknown"
    made(project, {"desk/b.yaml": "lr: 0.4\n"})
    assert parts(project)["desk/dpo.yaml"] == "config"  # the one that is called as the log
    (project / "desk/dpo.yaml").rename(project / "desk/a.yaml")
    assert "config" not in parts(project).values()


def test_nothing_is_left_aside_where_nothing_tells_what_ran(tmp_path: Path) -> None:
    """Two programs, and a log that neither printed."""
    files = {n: PROJECT[n] for n in ("train.py", "sample.py", "model.py", "configs/base.yaml", "configs/large.yaml")}
    folder = made(tmp_path, {**files, "job.log": "epoch 3 val 0.31 something else altogether\n"})
    assert set(parts(folder).values()) == {"unknown", "output"}


def test_two_programs_own_their_logs_each(project: Path) -> None:
    (project / "sample.log").write_text(printed_by(project, "sample.py"))
    ws = Workspace([project])
    assert {p.file.name: p.logs for p in ws.ran.programs} == {"train.py": ["train.log"], "sample.py": ["sample.log"]}


def test_of_programs_that_print_alike_the_one_named_like_the_log_or_in_it_ran(tmp_path: Path) -> None:
    """Scripts that are copies of each other, as in collections of algorithms."""
    source = "for n in range(2):\n    print(f'episode {n}, average score {n / 2}')\n"
    names = ("ppo", "dqn", "sac")
    folder = made(tmp_path, {**{f"{n}.py": source for n in names}, "a/ppo.log": "", "job.log": ""})
    told = printed_by(folder, "dqn.py")
    (folder / "ppo.log").write_text(told)
    (folder / "job.log").write_text(f"{folder}/sac.py:2: UserWarning: slow\n" + told)
    (folder / "job.err").write_text("100%|##########| 2/2\n")
    ws = Workspace([folder])
    assert {p.file.name: p.logs for p in ws.ran.programs} == {"ppo.py": ["ppo.log"], "sac.py": ["job.log", "job.err"]}
    assert parts(folder)["dqn.py"] == "bystander"


def test_a_measurement_of_speed_is_no_run_beside_one(project: Path) -> None:
    (project / "bench.log").write_text(printed_by(project, "bench.py"))
    found = parts(project)
    assert (found["bench.log"], found["bench.py"]) == ("bystander", "bystander")


def test_a_module_that_a_traceback_names_belongs_to_the_program(project: Path) -> None:
    (project / "plugin.py").write_text("def hook():\n    raise ValueError('no')\n")
    trace = '  File "/home/ada/project/plugin.py", line 2, in hook\n    raise ValueError("no")\nValueError: no\n'
    (project / "train.log").write_text(
        (project / "train.log").read_text() + f"Traceback (most recent call last):\n{trace}"
    )
    assert parts(project)["plugin.py"] == "program"


@pytest.mark.parametrize(
    ("question", "left"),
    [
        ("Why is wide_net worse than its training loss?", {"runs/small_net/train.log"}),
        ("Is small_net better than wide_net?", set()),
        ("What went wrong?", set()),
        ("Why is the base run worse?", {"runs/small_net/train.log", "runs/wide_net/train.log"}),
        ("Why is it worse, with the same base and one process?", set()),
    ],
)
def test_a_question_says_which_of_several_runs_is_meant(project: Path, question: str, left: set[str]) -> None:
    log = (project / "train.log").read_text()
    (project / "train.log").unlink()
    made(project, {f"runs/{name}/train.log": log for name in ("small_net", "wide_net", "base")})
    found = parts(project, question)
    found.pop("runs/base/train.log") if "base" not in question else None
    assert {n for n in found if n.startswith("runs/") and found[n] == "bystander"} == left


def test_a_run_that_ended_days_before_is_an_earlier_one(project: Path) -> None:
    rows = (
        "{day} 10:00:00 step 1: training loss 0.5, time 1.00ms\n{day} 10:00:09 step 2: training loss 0.4, time 1.00ms\n"
    )
    (project / "train.log").unlink()
    old, new, next_day = ("2026-01-03", "2026-02-10", "2026-02-11")
    made(project, {f"runs/{n}/out.log": rows.format(day=d) for n, d in (("aa", old), ("bb", new), ("cc", next_day))})
    found = parts(project)
    assert [found[f"runs/{n}/out.log"] for n in ("aa", "bb", "cc")] == ["bystander", "output", "output"]


DAY = "{day} 10:00:00 step 1: training loss 0.5, time 1.00ms\n{day} 10:00:09 step 2: training loss 0.4, time 1.00ms\n"


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("Why is the loss so high?", {"out/pear/run.log"}),
        ("Why did job-apple die?", {"logs/job-apple.out"}),
        ("It is slower than the other job, why?", {"out/pear/run.log", "notes/fig.log"}),
        ("It worked before, why not now?", {"out/pear/run.log", "logs/job-apple.out", "notes/fig.log"}),
    ],
)
def test_logs_of_other_days_are_of_other_runs_wherever_they_lie(project: Path, question: str, kept: set[str]) -> None:
    (project / "train.log").unlink()
    days = {"logs/job-apple.out": "2026-01-03", "notes/fig.log": "2026-03-01", "out/pear/run.log": "2026-03-20"}
    made(project, {name: DAY.format(day=day) for name, day in days.items()} | {"logs/apple.csv": "step,loss\n1,2\n"})
    found = parts(project, question)
    assert {name for name in days if found[name] == "output"} == kept
    assert (found["logs/apple.csv"] == "bystander") == ("logs/job-apple.out" not in kept)  # a folder of nothing else


def test_attempts_of_one_run_stay_together_however_long_it_takes(project: Path) -> None:
    (project / "train.log").unlink()
    days = [f"2026-01-{n:02}" for n in (1, 3, 5, 8)]
    chain = {f"logs/slurm-{n}.out": DAY.format(day=day) for n, day in enumerate(days)}
    long = DAY.format(day="2025-11-01") + "step 3: training loss 0.4\n" * 9000 + DAY.format(day="2026-01-02")
    made(project, chain | {"logs/first.out": long})
    assert {n for n, part in parts(project).items() if part == "output"} == {*chain, "logs/first.out"}
    spoken = DAY.format(day="2026-05-01") + "resumed from logs/first/last.ckpt\n"
    made(project, {"logs/second.out": spoken})
    assert {n for n, part in parts(project).items() if part == "output"} == {"logs/first.out", "logs/second.out"}


def test_streams_of_one_process_are_no_runs_and_times_of_two_kinds_are_not_compared(project: Path) -> None:
    log = (project / "train.log").read_text()
    made(project, {"out/stdout.log": log, "out/stderr.log": "2026-01-03 10:00:00 W slow\n", "out/first.log": log})
    found = parts(project)
    assert {found[f"out/{n}.log"] for n in ("stdout", "stderr", "first")} == {"output"}


def test_without_dates_in_logs_those_of_the_files_tell(project: Path) -> None:
    log = (project / "train.log").read_text()
    (project / "train.log").unlink()
    made(project, {"runs/aa/out.log": log, "runs/bb/out.log": log})
    assert "bystander" not in {parts(project)[f"runs/{n}/out.log"] for n in ("aa", "bb")}
    for name, when in (("aa", 1.7e9), ("bb", 1.7e9 + 9 * 86400)):
        os.utime(project / f"runs/{name}/out.log", (when, when))
    assert [parts(project)[f"runs/{n}/out.log"] for n in ("aa", "bb")] == ["bystander", "output"]
    compared = parts(project, "It learns slower than it did in January. Why?")
    assert [compared[f"runs/{n}/out.log"] for n in ("aa", "bb")] == ["output", "output"]


# ----------
# The statements that print.


@pytest.mark.parametrize(
    "statement",
    [
        'print(f"step {step} loss {loss:.3f}")',
        'print("step %d loss %.3f" % (step, loss))',
        'print("step {} loss {:.3f}".format(step, loss))',
        'print("step", step, "loss", round(loss, 3))',
        'logger.info("step %d loss %.3f", step, loss)',
        'line = f"step {step} loss {loss:.3f}"\nprint(line)',
        'print("step " + str(step) + " loss " + f"{loss:.3f}")',
        'print(f"step {step} "\n      f"loss {loss:.3f}")',
    ],
)
def test_a_line_is_known_by_the_statement_that_printed_it(statement: str) -> None:
    printed = Printed(statements(ast.parse(statement), "train.py"))
    match = printed.of("step 30 loss 2.125")
    assert match is not None and [v.strip() for v in match.values] == ["30", "2.125"]
    assert "step" in match.statement.expressions[0] and "loss" in match.statement.expressions[1]
    for other in ("epoch 30 val 2.125", "step loss", "", "30 2.125"):
        assert printed.of(other) is None, other


def test_what_a_field_holds_is_payload_however_it_reads() -> None:
    printed = Printed(statements(ast.parse('print(f"sample: {text}")'), "t.py"))
    match = printed.of("sample: CUDA out of memory, said the prince, and resume that spirit")
    assert match is not None and match.payload
    number = Printed(statements(ast.parse('print(f"validation loss {x}")'), "t.py")).of("validation loss 2.5")
    assert number is not None and not number.payload


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(
                st.characters(codec="utf-8", exclude_characters="\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), max_size=20
            ),
            st.integers(),
        ),
        max_size=5,
    )
)
def test_any_text_of_an_f_string_finds_its_statement_or_none(rows: list[tuple[str, int]]) -> None:
    """Never an error; and where a statement has enough text of its own, it is found."""
    pieces = "".join(
        text.replace("\\", "").replace("{", "").replace("}", "").replace('"', "").replace("'", "") + "{n}"
        for text, _ in rows
    )
    source = f"n = 1\nprint(f{pieces!r})"
    line = pieces.replace("{n}", "7")
    found = statements(ast.parse(source), "t.py")
    match = Printed(found).of(line)
    letters = sum(c.isalpha() for c in pieces.replace("{n}", ""))
    if (
        found
        and line.strip()
        and letters >= 8
        and line == line.strip()
        and "  " not in line
        and line.isprintable()
        and line.isascii()
    ):
        assert match is not None


# ----------
# Commands and imports.


def test_commands_of_scripts_logs_and_records() -> None:
    script = "set -e\nNAME=tiny\nOUT=runs/$NAME\ntorchrun --nproc_per_node 2 train.py --name $NAME --lr 1e-3 2>&1 | tee $OUT/train.log\n"
    (command,) = of_script(script, "run.sh")
    assert (command.program, command.line, command.writes) == ("train.py", 4, ("runs/tiny/train.log",))
    assert command.arguments == ("--name", "tiny", "--lr", "1e-3")
    log = [
        (1, "+ python -u tools/train.py --steps 5"),
        (2, "the python train.py of yesterday. It failed"),
        (9, "usage: eval.py [-h]"),
    ]
    assert [(c.program, c.line) for c in of_log(log, "a.log")] == [("tools/train.py", 1), ("eval.py", 9)]
    record = '{"program": "src/train.py", "args": ["--lr", "0.1"]}'
    (told,) = of_record(record, "wandb/run-1/files/wandb-metadata.json")
    assert (told.program, told.arguments) == ("src/train.py", ("--lr", "0.1"))
    for broken in ("{", "[]", '{"program": 3}', '{"argv": [1]}', "null"):
        assert list(of_record(broken, "args.json")) == []
    assert list(of_record("hydra: [", "a/.hydra/hydra.yaml")) == []


def test_imports_are_followed_inside_the_folder() -> None:
    sources = {
        "scripts/train.py": "import pkg.core\nfrom pkg.nets import Net\nexec(open('conf.py').read())\n",
        "scripts/conf.py": "x = 1\n",
        "src/pkg/__init__.py": "",
        "src/pkg/core.py": "from . import util\nfrom .nets import Net\n",
        "src/pkg/util.py": "import importlib\nimportlib.import_module(f'pkg.plugins.{name}')\n",
        "src/pkg/nets/__init__.py": "from .net import Net\n",
        "src/pkg/nets/net.py": "TARGET = 'pkg.losses.Focal'\n",
        "src/pkg/losses.py": "import train\n",
        "src/pkg/plugins/a.py": "",
        "src/pkg/unused.py": "",
        "other.py": "import pkg.unused\n",
    }
    modules = Modules(sources, lambda n: ast.parse(sources[n]))
    reached = set(modules.reached("scripts/train.py"))
    assert reached == set(sources) - {"src/pkg/unused.py", "other.py"}


def test_classes_that_a_config_in_use_names_are_reached(tmp_path: Path) -> None:
    files = {
        "train.py": "print('config conf/config.yaml is read')\nprint('training has begun here')\n",
        "conf/config.yaml": "model:\n  _target_: src.nets.net.Net\n  width: 8\n",
        "src/nets/net.py": "from src.nets.layers import Layer\n",
        "src/nets/layers.py": "class Layer: ...\n",
        "src/nets/other.py": "class Other: ...\n",
    }
    folder = made(tmp_path, files)
    (folder / "train.log").write_text(printed_by(folder, "train.py"))
    found = parts(folder)
    assert {n for n in found if found[n] == "program"} == {"train.py", "src/nets/net.py", "src/nets/layers.py"}
    assert found["src/nets/other.py"] == "bystander"


def test_bad_input_costs_nothing_but_what_it_is(tmp_path: Path) -> None:
    """Code that does not parse, configs in a circle, a program that is not there, a notebook, ten runs."""
    log = "step 1 loss 0.5\nstep 2 loss 0.25\n"
    folder = made(
        tmp_path,
        {
            "train.py": "for step in range(3:\n  print('step', step)\n",
            "a.yaml": "defaults:\n  - b\n",
            "b.yaml": "defaults:\n  - a\n",
            "launch.sh": "python missing.py --config a.yaml > train.log\n",
            "look.ipynb": '{"cells": []}',
            **{f"runs/r{n}x/train.log": log for n in range(10)},
        },
    )
    ws = Workspace([folder])
    assert ws.ran.programs == [] and {ws.ran.part(f) for f in ws.everything} <= {"unknown", "output"}
