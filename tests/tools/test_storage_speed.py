"""Storage is measured for real, within its bounds, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.shell import Recorded
from traindoctor.agent.core.types import Risk, ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine import host_tools
from traindoctor.agent.tools.machine.host_tools import storage_speed


def measure(folder: Path, **more: object) -> ToolResult:
    return storage_speed(Workspace([folder], live=True, may_be_empty=True), megabytes=8, **more)


def test_a_real_folder(tmp_path: Path) -> None:
    result = measure(tmp_path)
    assert result.outcome in {"clean", "finding"}
    kind, *rates = result.text.splitlines()
    assert kind.startswith(str(tmp_path.resolve())) and len(rates) == 4
    assert re.search(r"write (\d+) MB/s, read \d+ MB/s, \d+ files/s, \d+ stats/s", result.summary)
    assert list(tmp_path.iterdir()) == [] and storage_speed.risk is Risk.COSTLY


def test_the_machine_is_left_alone_where_the_run_is_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("step 1\n")
    assert storage_speed(Workspace([tmp_path], live=False)).outcome == "not_applicable"
    with pytest.raises(ToolError, match="no such path"):
        measure(tmp_path, path="/nowhere/x")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_disk_is_never_filled(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20M", "none", tmp_path], check=False).returncode:
        pytest.skip("may not mount")
    try:
        result = measure(tmp_path)
        assert result.outcome == "failed" and "are free" in result.summary and list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_a_read_only_place(tmp_path: Path) -> None:
    assert measure(Path("/proc/tty")).outcome == "failed"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killed_midway(how: signal.Signals, tmp_path: Path) -> None:
    argv = [sys.executable, "-I", "-m", host_tools.PROGRAM, str(tmp_path), "8", "60", "400000"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        own = Path(json.loads(child.stdout.readline())["folder"])
        while not any(own.glob("0*")) and child.poll() is None:
            time.sleep(0.01)
        child.send_signal(how)
    if how is signal.SIGKILL:
        assert own.is_dir()
        subprocess.run([*argv[:4], "--remove", str(own)], check=True)
    assert list(tmp_path.iterdir()) == []


def test_removal_takes_only_what_is_ours(tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    subprocess.run([sys.executable, "-I", "-m", host_tools.PROGRAM, "--remove", str(tmp_path / "weights")], check=True)
    assert (tmp_path / "weights").is_dir()


def test_slow_storage_is_named(tmp_path: Path) -> None:
    said = [
        {"folder": str(tmp_path / "x"), "kind": "nfs4"}, {"measure": "write", "bytes": 8 << 20, "seconds": 2.0},
        {"measure": "read", "bytes": 8 << 20, "seconds": 0.01}, {"measure": "files", "count": 500, "seconds": 20.0},
        {"measure": "stats", "count": 500, "seconds": 0.1},
    ]  # fmt: skip
    run = tmp_path / "run"
    run.mkdir()
    argv = [sys.executable, "-I", "-m", host_tools.PROGRAM, str(run), "8", "20", "500"]
    (tmp_path / "shell.json").write_text(
        json.dumps([{"argv": argv, "code": 0, "stdout": "\n".join(json.dumps(s) for s in said)}])
    )
    ws = Workspace([run], live=True, may_be_empty=True, shell=Recorded(tmp_path / "shell.json"))
    result = storage_speed(ws, megabytes=8)
    slow = [str(e.value) for e in result.evidence if e.key == "storage.slow"]
    assert result.outcome == "finding" and [s.split()[0] for s in slow] == ["write", "files"] and "network" in slow[0]
