"""Snapshots of the machine around a job: bounded, without secrets, of this job alone."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from traindoctor.agent.jobs.supervisor.snapshot import environment, packages, take


def test_a_snapshot_of_a_running_process(tmp_path: Path) -> None:
    secrets = {"HF_TOKEN": "hf_abcdefghijklmnopqrstuvwxyzabcdefgh", "AWS_SECRET_ACCESS_KEY": "x" * 40}
    job = subprocess.Popen(["sleep", "100"], env={**os.environ, **secrets, "NCCL_DEBUG": "WARN"})
    try:
        kept = take(tmp_path / "start", job.pid, time.monotonic(), {"run": str(tmp_path), "python": sys.executable})
    finally:
        job.kill()
        job.wait()
    texts = {name: (tmp_path / "start" / name).read_text() for name in kept}
    assert {"df.txt", "free.txt", "limits.txt", "environment.txt", "packages.txt"} <= set(texts)
    assert "NCCL_DEBUG=WARN" in texts["environment.txt"] and "HF_TOKEN=<left out>" in texts["environment.txt"]
    assert not any(value in text for value in secrets.values() for text in texts.values())
    assert "torch==" in texts["packages.txt"] and "Max open files" in texts["limits.txt"]
    stamps = [line for line in texts.get("dmesg.txt", "").splitlines()[1:] if line]
    assert not stamps, "what the kernel said before the job is not of the job"


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    """What was read of it at its start is used; nothing fails."""
    kept = take(tmp_path / "end", 999_999_999, 0.0, {"environ": "A=1\0B=2\0", "python": "/no/such/python3"})
    assert "environment.txt" in kept and "packages.txt" not in kept


def test_values_that_could_be_secrets_are_left_out() -> None:
    text = environment("WANDB_API_KEY=abc\0PASSWORD=x\0TOKENIZERS_PARALLELISM=false\0ODD\0MULTI=a\nb\0")
    assert text.splitlines() == [
        "MULTI=a\\nb", "PASSWORD=<left out>", "TOKENIZERS_PARALLELISM=false", "WANDB_API_KEY=<left out>",
    ]  # fmt: skip


def test_packages_of_an_environment_of_its_own(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.9" / "site-packages"
    for name in ("torch-2.1.0+cu118.dist-info", "flash_attn-2.5.dist-info", "not a package"):
        (site / name).mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").touch()
    (tmp_path / "bin").mkdir()
    assert packages(str(tmp_path / "bin" / "python")) == "flash-attn==2.5\ntorch==2.1.0+cu118\n"
