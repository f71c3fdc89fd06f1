"""The last line of progress against the steps and epochs that were asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.logs.endings import at_planned_end, endings
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.logpass import logpass
from traindoctor.agent.reading.settings.settings import read_settings


@pytest.mark.parametrize(
    ("call", "line", "ended"),
    [
        ("--max_iters=400", "iter 400: loss 0.8178, time 313.94ms", True),
        ("--max_iters=400", "iter 250: loss 1.0178, time 313.94ms", False),
        ("--epochs 4", "Epoch: [3][ 41/50]\tTime  0.009\tLoss 6.1e-02", True),
        ("--epochs 4", "Epoch: [3][  5/50]\tTime  0.009\tLoss 6.1e-02", False),
        ("--epochs 4", "Epoch: [2][ 41/50]\tTime  0.009\tLoss 6.1e-02", False),
        ("--lr 0.1", "step=200/200 loss=0.43 lr=1e-05", True),
        ("--lr 0.1", "step=180/200 loss=0.43 lr=1e-05", False),
        ("--lr 0.1", "Epoch 15/15 - 0.1s - loss: 0.6602 - val_loss: 0.1346", True),
        ("--lr 0.1", "Epoch 1/15 step 200/200 loss 0.66", False),
        ("--lr 0.1", "epoch: 3 step 500/500 loss 0.66", False),
        ("--lr 0.1", "Validation batch 120/120", False),
        ("--lr 0.1", "[eval] step 50/50", False),
        ("--lr 0.1", "Epoch 10/10 Batch 1", False),
        ("--lr 0.1", "iter 400: loss 0.8178", False),  # nothing says how long it was to be
    ],
)
def test_where_the_run_was_to_end(tmp_path: Path, call: str, line: str, ended: bool) -> None:
    (tmp_path / "launch.sh").write_text(f"#!/bin/bash\npython train.py {call}\n")
    (tmp_path / "train.log").write_text(line + "\n")
    assert at_planned_end(line, read_settings(Workspace([tmp_path]))) is ended


STEPS = "".join(f"train step {n}/500 loss {3 - n / 500:.3f}\n" for n in range(0, 501, 10))


@pytest.mark.parametrize(
    ("log", "state"),
    [
        (STEPS, "finished"),
        ("Epoch 3 of 10\n" + STEPS, "unknown"),
        ("Epoch 10 of 10\n" + STEPS, "finished"),
        (STEPS + STEPS, "unknown"),  # a count for each epoch
        ("".join(f"[Epoch {e}/3] [Batch {b}/8] [loss: 0.5]\n" for e in range(3) for b in range(8)), "finished"),
        ("".join(f"[Epoch {e}/3] [Batch {b}/8] [loss: 0.5]\n" for e in range(2) for b in range(8)), "unknown"),
        ("".join(f"[Epoch {e}/3] [Batch {b}/8] [loss: 0.5]\n" for e in (1, 2) for b in range(1, 8)), "unknown"),
        (STEPS + "Saving checkpoint to /ckpt/step-500\n", "unknown"),
        (STEPS + "Saving checkpoint to /ckpt/step-500\nsaved in 3.1 s\n", "finished"),
    ],
)
def test_the_log_around_the_last_count(tmp_path: Path, log: str, state: str) -> None:
    (tmp_path / "train.log").write_text(log)
    ws = Workspace([tmp_path])
    assert endings(ws, logpass(ws), failures(ws)).state == state


def test_a_bar_at_its_end_and_a_word_of_what_is_done_are_no_silence(tmp_path: Path) -> None:
    for name, count, silent in (("whole.log", "8/8", False), ("part.log", "5/8", True)):
        (tmp_path / name).write_text(f"Predicting step {count} loss 0.30\nPredictions saved to out/found.csv\n")
        ws = Workspace([tmp_path / name])
        assert [e.silent for e in endings(ws, logpass(ws), failures(ws)).files] == [silent]
