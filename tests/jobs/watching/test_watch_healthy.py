"""Sound runs, replayed as they grew: no alarm. Each file in turn, a few lines at a time, one look in between."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from traindoctor.agent.jobs.watching.alarm import KINDS, Alarm
from traindoctor.agent.jobs.watching.followed_run import Run

from tests.conftest import ROOT

_PIECES = 12  # looks that a file takes to grow
_HEALTHY = sorted(p for p in (ROOT / "evals" / "healthy").glob("*/files"))
_BINARY = (".pt", ".ckpt", ".bin", ".safetensors", ".json", ".yaml", ".py", ".sh")


def replayed(source: Path, into: Path, pieces: int = _PIECES) -> list[Alarm]:
    """The alarms of a run whose files grow piece by piece."""
    run = Run(into, frozenset(KINDS) - {"disk_filling", "xid"})
    said = run.look()
    texts = sorted(p for p in source.rglob("*") if p.is_file() and p.suffix not in _BINARY)
    for path in texts:
        target = into / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        size = max(1, -(-len(data) // pieces))
        with target.open("ab", buffering=0) as out:
            for at in range(0, len(data), size):
                out.write(data[at : at + size])
                run.search()
                said += run.look()
    shutil.copytree(source, into, dirs_exist_ok=True)
    run.search()
    said += run.look()
    said += run.look(last=True)
    run.close()
    return said


@pytest.mark.parametrize("source", _HEALTHY, ids=lambda p: p.parent.name)
def test_a_sound_run_raises_no_alarm(source: Path, tmp_path: Path) -> None:
    assert [a for a in replayed(source, tmp_path) if a.severity == "alarm"] == []


@pytest.mark.parametrize(
    "name", ["loss-pegasus-pretrain-inf", "memory-gemma2-9b-squad-step10", "ckpt-continue-refused"]
)
def test_the_replay_can_raise_one(name: str, tmp_path: Path) -> None:
    source = ROOT / "evals" / "incidents" / name / "files"
    assert [a for a in replayed(source, tmp_path) if a.severity == "alarm"]
