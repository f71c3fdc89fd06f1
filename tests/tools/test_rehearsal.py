"""What a check would run is told without running it, writing anything or reaching anybody; the real run does it so."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import DoctorError
from traindoctor.agent.core.shell import Completed, Live, Recording
from traindoctor.agent.core.types import Call, Risk
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.rehearsal import Rehearsed, rehearse
from traindoctor.agent.tools.tool import all_tools

ABOVE = sorted(n for n, t in all_tools().items() if t.risk is not Risk.READ)
CALLS = {
    "dump_stacks": {"seconds": 0.0},
    "sample_stacks": {"seconds": 0.05},
    "live_query": {"sql": "select 1"},
    "live_eval": {"expression": "1 + 1"},
    "nccl_test": {"link": "loopback"},
    "storage_speed": {},
}
PROGRAMS = ("py-spy", "probing", "all_reduce_perf", "nvidia-smi", "torchrun", "python", "cat")


class Listing:
    """A machine with one rank; every other program is run for real."""

    def __init__(self, real: Live | None = None) -> None:
        self.real, self.asked = real or Live(), []

    def run(self, argv, timeout=10.0, env=None, cwd=None) -> Completed:
        self.asked.append((list(argv), dict(env or {}), str(cwd or "")))
        if "traindoctor.agent.jobs.probes.processes" in argv:
            variables = {"RANK": "0", "WORLD_SIZE": "1", "PROBING": "1"}
            row = {"pid": 4242, "parent": 1, "uid": 0, "name": "python", "state": "S", "command": "python train.py"}
            return Completed(tuple(argv), 0, json.dumps({**row, "variables": variables}) + "\n")
        return self.real.run(argv, timeout, env, cwd)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Workspace, Listing, Path]:
    """A run here, programs that leave a mark when they are started, a folder for mere moments."""
    programs, mark, run, moment = (tmp_path / n for n in ("bin", "mark", "run", "moment"))
    for folder in (programs, run, moment):
        folder.mkdir()
    for name in PROGRAMS:
        (programs / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {mark}\n')
        (programs / name).chmod(0o755)
    (run / "train.log").write_text("step 1 loss 1.4\n")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCTOR_PYTHON", str(programs / "python"))
    monkeypatch.setattr(tempfile, "tempdir", str(moment))
    shell = Listing()
    return Workspace([run], shell=shell, live=True, pids=(4242,)), shell, mark


def times(folder: Path) -> dict[str, int]:
    """Every entry of a folder, the folders with the time of their last change."""
    return {str(p): p.stat().st_mtime_ns for p in [folder, *folder.rglob("*")]}


def argvs(told: Rehearsed) -> list[list[str]]:
    """The commands alone."""
    return [list(line.argv) for line in told.lines]


def test_every_check_above_reading_is_rehearsed_here() -> None:
    assert sorted(CALLS) == ABOVE


@pytest.mark.parametrize("name", ABOVE)
def test_nothing_is_run_or_written_and_the_real_run_is_the_same(
    name: str, machine: tuple[Workspace, Listing, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, shell, mark = machine
    shell.real = Live()
    before, memo, skipped = times(tmp_path), dict(ws._memo), list(ws.skipped)
    monkeypatch.setattr("socket.socket.connect", lambda *a: pytest.fail("a rehearsal reached out"))
    told = rehearse(Call(name, CALLS[name]), ws)
    assert told.lines, told.note
    assert not mark.exists() or set(mark.read_text().split("\n")) <= {"nvidia-smi -L", ""}, mark.read_text()
    after = {p: t for p, t in times(tmp_path).items() if "mark" not in p}
    if not mark.exists():
        assert after == before  # not even a folder that was there for a moment
    assert (ws._memo, ws.skipped) == (memo, skipped)
    assert told.touches and told.touches[0].startswith("this machine")
    if name in ("dump_stacks", "sample_stacks", "live_query", "live_eval"):
        assert told.touches[1:] == ("process 4242 (rank 0): python train.py",)

    monkeypatch.undo()
    asked = _really(name, ws, shell, monkeypatch, tmp_path)
    for line in told.lines:
        assert any(_same(line, *real) for real in asked), (line, asked)


def _really(
    name: str, ws: Workspace, shell: Listing, monkeypatch: pytest.MonkeyPatch, home: Path
) -> list[tuple[list[str], dict[str, str], str]]:
    """What the real run asks of the shell, where every program but those that list answers nothing."""
    monkeypatch.setenv("DOCTOR_PYTHON", str(home / "bin" / "python"))

    class Silent(Live):
        def run(self, argv, timeout=10.0, env=None, cwd=None) -> Completed:
            return Completed(tuple(argv), 0, "")

    shell.asked.clear()
    shell.real = Silent()
    ws._shell = recording = Recording(shell)
    with contextlib.suppress(DoctorError):  # nothing was answered; what was asked counts
        all_tools()[name](ws, **CALLS[name])
    assert recording.answers
    return shell.asked


def _same(line, argv: list[str], env: dict[str, str], cwd: str) -> bool:
    """The same command, but for the names of what is made when it is run."""
    if argv[0] == "probing" and argv[3] == "eval":
        name = argv[4].split("'")[1]
        argv = [*argv[:4], argv[4].replace(name, "{answer}")]
    return (list(line.argv), dict(line.env), line.cwd) == (argv, env, cwd)


def test_what_it_says_beside_the_commands(machine: tuple[Workspace, Listing, Path]) -> None:
    ws, _, mark = machine
    dump = rehearse(Call("dump_stacks"), ws)
    assert argvs(dump) == [["py-spy", "dump", "--nonblocking", "--subprocesses", "--pid", "4242"]]
    assert "twice, 1 s apart" in dump.note
    assert "up to 10 times a second" in rehearse(Call("sample_stacks"), ws).note
    speed = rehearse(Call("storage_speed", {"megabytes": 8}), ws).lines[0].argv
    assert speed[0] == sys.executable and speed[-4:] == (str(ws.roots[0].resolve()), "8", "20", "500")
    hostile = rehearse(Call("live_eval", {"expression": "'{seconds} \x1b[31m'"}), ws)
    assert "{answer} is a fresh file" in hostile.note and "{seconds}" in hostile.lines[0].argv[-1]
    assert not mark.exists()


def test_where_no_command_can_be_told(
    machine: tuple[Workspace, Listing, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    ws, _, _ = machine
    assert "no such check" in rehearse(Call("guess"), ws).note
    assert "Field required" in rehearse(Call("live_eval"), ws).note
    elsewhere = Workspace(ws.roots, shell=Live(), live=False)
    assert "not this machine's own" in rehearse(Call("storage_speed"), elsewhere).note
    monkeypatch.setenv("PATH", "")
    bare = Workspace(ws.roots, shell=Live(), live=True)
    assert "all_reduce_perf" not in str(rehearse(Call("nccl_test"), bare).lines)


def test_it_is_over_in_time(machine: tuple[Workspace, Listing, Path]) -> None:
    ws, shell, _ = machine
    told = rehearse(Call("dump_stacks"), ws, seconds=0.0)
    assert not told.lines and told.note
    assert not shell.asked
    stopped = rehearse(Call("dump_stacks"), ws, stopped=lambda: True)
    assert isinstance(stopped, Rehearsed)
