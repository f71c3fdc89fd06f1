"""What a run is known to have had none of, and the causes that are out of question then."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.settings.presupposed_tools import presupposed
from traindoctor.agent.verdict.predicates import Facts
from traindoctor.agent.verdict.ranking import _needs, out_of_question

TRAIN = 'import torch\nprint("training on cpu, nothing else")\nfor step in range(3):\n    print(f"step {step} loss {1.0:.4f}")\n'
LOG = "training on cpu, nothing else\nstep 0 loss 1.0000\nstep 1 loss 1.0000\n"


def lacking(folder: Path, code: str = TRAIN, log: str = LOG, question: str = "", **more: str) -> set[str]:
    (folder / "train.py").write_text(code)
    (folder / "train.log").write_text(log)
    for name, text in more.items():
        (folder / name.replace("__", ".")).write_text(text)
    return {str(e.value) for e in presupposed(Workspace([folder], question=question)).evidence}


def test_a_plain_run_on_the_cpu(tmp_path: Path) -> None:
    assert lacking(tmp_path) == {"gpu", "peers", "resume", "experts", "policy", "engine"}


@pytest.mark.parametrize(
    ("changed", "there"),
    [
        ({"log": LOG + "rank 1 of 4 started\n"}, "peers"),
        ({"run__sh": "torchrun --nproc-per-node 2 train.py > train.log\n"}, "peers"),
        ({"log": LOG + "resumed from step 100\n"}, "resume"),
        ({"code": TRAIN + "num_experts = 8\n"}, "experts"),
        ({"question": "why does my GRPO reward fall?"}, "policy"),
        ({"log": LOG + "vLLM is ready\n"}, "engine"),
        ({"code": TRAIN.replace("on cpu", "on cuda"), "log": LOG.replace("on cpu", "on cuda")}, "gpu"),
    ],
)
def test_what_there_is_a_sign_of_is_not_lacking(tmp_path: Path, changed: dict[str, str], there: str) -> None:
    assert there not in lacking(tmp_path, **changed)


@pytest.mark.parametrize("code", ["", "def broken(:\n", "import helper\nfrom other import missing\n"])
def test_nothing_is_said_of_a_program_that_is_not_known_to_have_run(tmp_path: Path, code: str) -> None:
    assert lacking(tmp_path, code, "epoch 3: all is well\n") == set() or code.startswith("import")


def test_only_causes_that_are_known_presuppose_something() -> None:
    assert set().union(*_needs().values()) <= set(causes())
    facts = Facts.of([Evidence(key="run.lacks", value="peers", kind="absent", id="E1")])
    assert "speed.straggler" in out_of_question(facts) and "loss.lr_too_high" not in out_of_question(facts)
    assert out_of_question(Facts.of([])) == frozenset()
