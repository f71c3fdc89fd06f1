"""From what a run leaves to the cause: snapshots and estimates decide between causes whose message is the same."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

from tests.tools.test_estimate import LLAMA, OOM
from tests.tools.test_memory_snapshots import MIB, Allocator, training

STEPS = "".join(f"step {i} loss {9 / i:.3f}\n" for i in range(1, 60))
SETTINGS = (
    "per_device_train_batch_size: {batch}\nmax_seq_length: {length}\nbf16: true\noptim: adamw_torch\n"
    "gradient_checkpointing: {checkpointing}\nfsdp: full_shard\nworld_size: {ranks}\n"
)


def told(folder: Path, state: Path) -> Report:
    return list(diagnose(Workspace([folder]), "why did it run out of memory?", state=state))[-1].report  # pyright: ignore


def run(folder: Path, log: str, settings: str = "", snapshot: object = None) -> Path:
    made = folder / "run"
    made.mkdir()
    (made / "train.log").write_text(log)
    if settings:
        (made / "config.json").write_text(json.dumps(LLAMA))
        (made / "train.yaml").write_text(settings)
    if snapshot is not None:
        (made / "snapshot_rank0.pickle").write_bytes(pickle.dumps(snapshot))
    return made


def test_a_snapshot_names_the_leak(tmp_path: Path) -> None:
    made = training(14, leak=3 * MIB)
    made.fail(4 * MIB, "model.py:20")
    report = told(run(tmp_path, STEPS + OOM, snapshot=made.snapshot()), tmp_path / "state")
    assert report.root_cause and report.root_cause.id == "memory.graph_retained"
    assert any("metrics.py:7" in e.text for e in report.evidence)


def test_a_snapshot_shows_fragments(tmp_path: Path) -> None:
    made = Allocator()
    held = [made.take(64 * MIB, "model.py:40") for _ in range(200)]
    for address in held[::2]:
        made.give(address)
    made.fail(1024 * MIB, "model.py:44")
    report = told(
        run(tmp_path, STEPS + "torch.OutOfMemoryError: CUDA out of memory.\n", snapshot=made.snapshot()),
        tmp_path / "state",
    )
    assert report.root_cause and report.root_cause.id == "memory.fragmentation"


def test_states_beyond_the_device_are_not_the_batch(tmp_path: Path) -> None:
    settings = SETTINGS.format(batch=4, length=1024, checkpointing="true", ranks=1).replace("fsdp: full_shard\n", "")
    report = told(run(tmp_path, OOM, settings), tmp_path / "state")
    assert report.root_cause and report.root_cause.id == "memory.optimizer_states"


@pytest.mark.parametrize(("batch", "checkpointing"), [(16, "true")])
def test_a_batch_beyond_the_device_is_told(batch: int, checkpointing: str, tmp_path: Path) -> None:
    settings = SETTINGS.format(batch=batch, length=8192, checkpointing=checkpointing, ranks=64)
    report = told(run(tmp_path, OOM, settings), tmp_path / "state")
    assert report.root_cause
    assert report.root_cause.id in ("memory.batch_too_large", "memory.logits_peak", "memory.sequence_too_long")
    assert any(e.key == "estimate.batch_exceeds" for e in report.evidence)


def test_a_snapshot_of_a_healthy_run_accuses_nobody(tmp_path: Path) -> None:
    folder = run(tmp_path, STEPS, snapshot=training(10).snapshot())
    report = told(folder, tmp_path / "state")
    assert not report.root_cause or not (report.root_cause.id or "").startswith("memory.")
