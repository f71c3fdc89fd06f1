"""Replicas of real Gloo trainings: in step, without the wrapper, all with the same data."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.weights.replicas_tools import replica_divergence

from tests.jobs.supervised.started import left_by
from tests.tools.captured import Seen, look


@pytest.fixture(scope="session")
def trained() -> Path:
    return left_by("training", 3)


def seen(folder: Path) -> Seen:
    return Seen(replica_divergence(Workspace([folder])), folder)


def test_synchronized_replicas_are_equal(trained: Path) -> None:
    found = seen(trained / "in_step")
    assert found.result.outcome == "clean" and "steps, equal" in found.result.text
    assert found.values("replica.checkpoints_equal") == [True, True] and re.search(
        r"spread [\d.]*[1-9]", found.result.text
    )


def test_a_model_without_its_wrapper_drifts(trained: Path) -> None:
    found = seen(trained / "unwrapped")
    assert found.result.outcome == "finding" and "different from step 0 on" in found.result.text
    assert len(set(found.values("replica.parameters_differ"))) == 2
    assert len(found.values("replica.checkpoint_differs")) == 2 and found.one("replica.checkpoint_differs") > 0.01


def test_checkpoints_alone_tell_it(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "unwrapped" / "checkpoint", tmp_path / "checkpoint")
    assert seen(tmp_path).result.outcome == "finding"


@pytest.mark.parametrize("name", ["same_data", "averaged"])
def test_equal_losses_on_all_ranks_are_told_and_blame_nothing(name: str, trained: Path) -> None:
    found = seen(trained / name)
    assert found.values("replica.losses_identical") == [True, True]
    assert found.result.outcome == "clean" and "same data" in found.result.summary


@pytest.mark.parametrize(
    ("name", "values", "differ"),
    [
        ("param_checksum", [(12.5, 12.75)], True),
        ("param_norm", [(81.25, 81.25), (80.5, 83.0)], True),
        ("param_norm", [(81.25, 90.5), (80.5, 91.0)], False),  # may be parts of one model
        ("param_checksum", [(12.5, 12.5)], False),
    ],
)
def test_few_steps_tell_sums_apart(name: str, values: list[tuple], differ: bool, tmp_path: Path) -> None:
    log = "".join(
        f"[rank{rank}]: step={100 * at} {name}={value}\n"
        for at, pair in enumerate(values, 1)
        for rank, value in enumerate(pair)
    )
    found = look(replica_divergence, tmp_path, train_log=log)
    assert bool(found.values("replica.parameters_differ")) is differ


def test_losses_that_drift_apart(tmp_path: Path) -> None:
    log = "".join(
        f"[rank{r}]: step={s} loss={2.0 - s * 0.03 if r == 0 else 2.0 + s * 0.05 + 0.01 * r:.4f}\n"
        for s in range(40) for r in range(3)
    )  # fmt: skip
    found = look(replica_divergence, tmp_path, train_log=log)
    assert found.one("replica.loss_spread_growth") > 3 and found.result.outcome == "finding"


def test_shards_are_no_replicas(trained: Path, tmp_path: Path) -> None:
    for path in (trained / "unwrapped" / "checkpoint").iterdir():
        shutil.copy(path, tmp_path / path.name.replace("model", "zero_optim_states"))
    assert seen(tmp_path).result.outcome == "not_applicable"


def test_a_broken_checkpoint_is_not_called_clean(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "in_step" / "checkpoint", tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / "model_rank_1.pt"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = seen(tmp_path)
    assert found.result.outcome != "clean"


def test_nothing_to_compare(tmp_path: Path) -> None:
    assert look(replica_divergence, tmp_path, train_log="step 1 loss 2.0\n").result.outcome == "not_applicable"
