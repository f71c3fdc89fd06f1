"""Two logs of which the second takes the training up in mid-run, without a word about it."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.logs.ranks_tools import rank_roster


def log(
    folder: Path, name: str, first: int, count: int, rate: float = 1e-4, warmup: int = 0, bump: float = 0.0
) -> None:
    rows = []
    for i in range(count):
        step, lr = first + 10 * i, rate * min(1.0, (i + 1) / warmup) if warmup else rate
        loss = 1.2 + 1.8 * 0.9995**step + bump * 0.9**i + i % 3 / 100
        rows.append(f"step {step} loss {loss:.4f} lr {lr:.2e}\n")
    (folder / name).write_text("".join(rows))


def keys(folder: Path) -> set[str]:
    found = find_anomalies(Workspace([folder], live=False)).evidence
    return {e.key for e in found if e.key in ("resume.lr_reset", "resume.curve_jump")}


@pytest.mark.parametrize("first", [2000, 1500], ids=["after the end", "from a checkpoint before it"])
def test_a_rate_that_starts_over_and_a_loss_that_jumps_are_told(first: int, tmp_path: Path) -> None:
    log(tmp_path, "slurm-101.out", 0, 200)
    log(tmp_path, "slurm-102.out", first, 100, warmup=50, bump=0.9)
    assert keys(tmp_path) == {"resume.lr_reset", "resume.curve_jump"}


def test_what_goes_on_as_it_was_is_no_fault(tmp_path: Path) -> None:
    log(tmp_path, "slurm-101.out", 0, 200)
    log(tmp_path, "slurm-102.out", 2000, 100)
    assert keys(tmp_path) == set()


def test_two_runs_from_the_start_are_compared_and_not_strung_together(tmp_path: Path) -> None:
    log(tmp_path, "a.log", 0, 200)
    log(tmp_path, "b.log", 0, 100, rate=1e-5, bump=0.9)
    assert keys(tmp_path) == set()


@pytest.mark.parametrize(("last", "step"), [("Map:  55%|### | 550000/1000000 [27:00<20:00, 600.1 examples/s]", None),
                                            (" 31%|###   | 1551/5000 [41:20<1:31:40,  1.59s/it]", 1551)])  # fmt: skip
def test_a_bar_over_data_counts_no_steps(last: str, step: int | None, tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(f"loading\n{last}\n")
    (tmp_path / "rank1.log").write_text("loading\nwaiting for rank 0\n")
    found = [e.value for e in rank_roster(Workspace([tmp_path], live=False)).evidence if e.key == "rank.last_seen_step"]
    assert found == ([] if step is None else [step])
