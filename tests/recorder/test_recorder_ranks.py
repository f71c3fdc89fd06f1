"""The recorder on several ranks, whole and sharded: the rank whose batch was bad is told from its peers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.reading.checkpoints.layouts import checkpoints
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.time.profiles_tools import recorder

pytestmark = pytest.mark.soak  # each starts two ranks


def trained(run: Path, kind: str, *bad: str) -> Workspace:
    program = Path(__file__).with_name("ranks.py")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*launch, str(program), str(run), kind, *bad], check=True, timeout=200, capture_output=True)
    return Workspace([run])


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_the_rank_whose_batch_was_bad_is_named(tmp_path: Path, kind: str) -> None:
    ws = trained(tmp_path / "run", kind, "40")
    found = {e.rank: e for e in recorder(ws).evidence if e.key == "recorder.batch_nonfinite"}
    assert set(found) == {1} and found[1].step == 40
    start = json.loads((tmp_path / "run/doctor-recorder/events_rank_1.jsonl").read_text().splitlines()[0])
    assert start["sharded"] is (kind == "fsdp") and start["world_size"] == 2
    assert not checkpoints(ws), "a batch that was kept is no checkpoint"


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_sound_ranks_are_clean(tmp_path: Path, kind: str) -> None:
    assert recorder(trained(tmp_path / "run", kind)).outcome == "clean"
