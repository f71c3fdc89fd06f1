"""An optional package that is not there is printed and gone on from; a needed one ends the run."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.run.workspace import Workspace

STEPS = "".join(f"step {n}/60 loss {2 - n / 60:.4f}\n" for n in range(1, 61))
IMPORT = """Traceback (most recent call last):
  File "/data/run/train.py", line 12, in <module>
    import flash_attn
ModuleNotFoundError: No module named 'flash_attn'
"""
LATER = """Traceback (most recent call last):
  File "/data/run/train.py", line 80, in <module>
    main()
  File "/data/run/train.py", line 61, in main
    text = record["body"]
KeyError: 'body'
"""
WITHIN = IMPORT.replace("in <module>", "in save_weights")


@pytest.mark.parametrize(
    ("log", "first", "caught"),
    [
        (IMPORT + STEPS + "Training completed.\n", "", 1),
        (IMPORT + STEPS + LATER, "KeyError", 1),
        (IMPORT, "ModuleNotFoundError", 0),
        (IMPORT + STEPS, "ModuleNotFoundError", 0),  # the last import of a flat script, its buffered output behind it
        (STEPS + IMPORT, "ModuleNotFoundError", 0),
        (WITHIN + STEPS + "Training completed.\n", "ModuleNotFoundError", 0),
    ],
)
def test_what_went_on_was_caught(tmp_path: Path, log: str, first: str, caught: int) -> None:
    (tmp_path / "train.log").write_text(log)
    found = failures(Workspace([tmp_path], live=False))
    assert (found.first.name if found.first else "") == first
    assert len(found.survived) == caught
    assert found.is_survived("train.log", 4) == bool(caught)


def test_a_restart_is_no_proof_that_an_import_was_caught(tmp_path: Path) -> None:
    failed = (
        "E1122 22:52:46.212000 16302 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 0 (pid: 16399) of binary: /opt/venv/bin/python\n"
    )
    (tmp_path / "train.log").write_text(IMPORT + failed + STEPS + "Training completed.\n")
    found = failures(Workspace([tmp_path], live=False))
    assert found.first is not None and found.survived == []


REFUSED = """Traceback (most recent call last):
  File "/data/run/push.py", line 30, in push
    send(rows)
ConnectionRefusedError: [Errno 111] Connection refused
"""


@pytest.mark.parametrize(
    ("log", "caught"),
    [
        ((REFUSED + "push failed\n") * 6 + "Training completed.\n", 6),
        ((REFUSED + "push failed\n") * 6, 0),  # it may have died of the last
        (REFUSED * 2 + "Training completed.\n", 0),  # two ranks that died alike
        ((REFUSED + "push failed\n") * 6 + "wandb: Synced 5 files\n", 0),
        ((REFUSED + "push failed\n") * 6 + LATER, 0),
    ],
)
def test_what_was_raised_again_and_again_was_caught(tmp_path: Path, log: str, caught: int) -> None:
    (tmp_path / "train.log").write_text(log)
    assert len(failures(Workspace([tmp_path], live=False)).survived) == caught
