"""What this machine says now counts only for a run that was made on it, lately."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.reading.run.workspace import Workspace


@pytest.fixture(autouse=True)
def _named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "gpu-node17.cluster.local")


def test_a_run_that_names_this_machine(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("gpu-node17:4711:4711 [0] NCCL INFO Bootstrap : Using eth0\nstep 1 loss 2.0\n")
    assert Workspace([tmp_path]).live


def test_a_run_of_another_machine(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("gpu-node171:4711:4711 [0] NCCL INFO Bootstrap : Using eth0\nstep 1 loss 2.0\n")
    assert not Workspace([tmp_path]).live
    assert Workspace([tmp_path], pids=(1,)).live, "who names a process asks about this machine"


def test_an_old_run_of_this_machine(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("gpu-node17:4711:4711 [0] NCCL INFO Bootstrap : Using eth0\nstep 1 loss 2.0\n")
    week = time.time() - 7 * 86400
    os.utime(log, (week, week))
    assert not Workspace([tmp_path]).live


def test_a_folder_that_is_named_may_be_another_machines(doctor: Any, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("gpu-node171:4711:4711 [0] NCCL INFO Bootstrap : Using eth0\nstep 1 loss 2.0\n")
    named = doctor("tool", "host-health", tmp_path)
    assert named.returncode == 0 and "this machine" not in named.stdout, named.stdout
    assert "this machine" in doctor("tool", "host-health", cwd=tmp_path).stdout
