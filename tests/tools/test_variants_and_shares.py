"""Variants named by words, runs resumed into a log of their own, unequal shares of ranks, telling lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import evidence, values, workspace
from traindoctor.agent.reading.run.discover import places
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.logs.log_tools import telling_lines
from traindoctor.agent.tools.logs.ranks_tools import rank_roster

TIMEOUT = "[rank{r}]:[E ProcessGroupNCCL.cpp:563] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=19)\n"


def test_runs_that_differ_in_a_word_are_variants() -> None:
    found = places([("run_flash.log", "log"), ("run_plain.log", "log"), ("config_flash.yaml", "config")])
    assert [found[n].variant for n in ("run_flash.log", "run_plain.log", "config_flash.yaml")] == [
        "flash",
        "plain",
        "flash",
    ]


def test_parts_of_one_run_are_not_variants() -> None:
    found = places([("train_stdout.log", "log"), ("train_stderr.log", "log"), ("run_trainer.log", "log")])
    assert {p.variant for p in found.values()} == {None}


def test_one_variant_alone_is_never_finite(tmp_path: Path) -> None:
    bad = "".join(f"{{'loss': nan, 'epoch': {i}}}\n" for i in range(1, 4))
    good = "".join(f"{{'loss': {4 - i / 9}, 'epoch': {i}}}\n" for i in range(1, 4))
    r = find_anomalies(workspace(tmp_path, train_gpu_log=bad, train_cpu_log=good))
    assert values(r, "variant.nonfinite_alone") == ["gpu"]
    assert values(r, "variant.finite") == ["cpu"]


def test_a_resumed_run_with_a_log_of_its_own(tmp_path: Path) -> None:
    first = "".join(f"step {i} loss 1.98 lr 0.001\n" for i in (98, 99, 100))
    later = (
        "loading checkpoint ckpt/last.pt, resuming from step 100\n"
        + "step 101 loss 3.1 lr 0.1\nstep 102 loss 3.0 lr 0.1\n"
    )
    r = find_anomalies(workspace(tmp_path, first_log=first, resumed_log=later))
    assert values(r, "resume.lr_reset") == [0.1]
    assert evidence(r, "resume.curve_jump")[0].file == "resumed.log"


def test_ranks_with_unequal_shares(tmp_path: Path) -> None:
    text = (
        "[rank0] shard: 18 batches\n[rank1] shard: 21 batches\n[rank0] epoch 0 finished after 18 steps\n"
        + TIMEOUT.format(r=1)
    )
    r = rank_roster(workspace(tmp_path, train_log=text))
    assert values(r, "rank.counts_differ") == [{"of": "batch", "low": 18, "high": 21}] * 2
    assert values(r, "rank.silent_done") == [0]
    assert values(r, "rank.silent_while_others_fail") == []


def test_equal_shares_tell_nothing(tmp_path: Path) -> None:
    r = rank_roster(workspace(tmp_path, train_log="[rank0] 20 batches\n[rank1] 20 batches\n"))
    assert values(r, "rank.counts_differ") == []


def test_telling_lines_of_small_files(tmp_path: Path) -> None:
    ws = workspace(tmp_path, compare_txt="layers.0.fc1 differs\nlayers.0.fc2 equal\n", big_txt="x" * 20_000)
    r = telling_lines(Workspace(ws.roots, question="why do the layers differ?"))
    assert [e.line for e in evidence(r, "log.telling")][:1] == [1]
    assert {e.file for e in r.evidence} == {"compare.txt"}


def test_two_variants_with_one_curve(tmp_path) -> None:
    from traindoctor.agent.reading.run.workspace import Workspace
    from traindoctor.agent.tools.curves.metrics_tools import find_anomalies

    rows = "".join(
        f"{{'loss': {3 - n / 50:.4f}, 'grad_norm': {1 + n / 90:.4f}, 'epoch': {n / 10}}}\n" for n in range(20)
    )
    (tmp_path / "run_a.log").write_text(rows)
    (tmp_path / "run_b.log").write_text(rows)
    keys = {e.key for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert "variant.identical" in keys
    (tmp_path / "run_b.log").write_text(rows.replace("3.0000", "3.0001"))
    keys = {e.key for e in find_anomalies(Workspace([tmp_path])).evidence}
    assert "variant.identical" not in keys


@pytest.mark.parametrize(
    ("words", "values_of_ranks", "told"),
    [
        ("using micro-batch {} x 4", (8, 8, 12), "micro-batch: 12 on 2, 8 on 0"),
        ("seq_length ................ {}", (4096, 2048, 4096), None),  # a dotted table is no announcement of this form
        ("args: seq_length={}, lr=0.1", (4096, 2048, 4096), "seq_length: 2048 on 1, 4096 on 0"),
        ("'gradient_accumulation_steps': {}", (4, 4, 2), "gradient_accumulation_steps: 2 on 2, 4 on 0"),
        ("world size {}", (2, 2, 2), None),
        ("batch size = {}/64", (8, 9, 10), None),  # progress within something
        ("micro batch size {}% done", (8, 9, 10), None),
    ],
)
def test_ranks_that_announce_another_shape_of_work(
    words: str, values_of_ranks, told: str | None, tmp_path: Path
) -> None:
    logs = {f"rank_{r}_log": f"start\n{words.format(v)}\nstep 1 loss 2.0\n" for r, v in enumerate(values_of_ranks)}
    r = rank_roster(workspace(tmp_path, **logs))
    assert values(r, "rank.setting_differs") == ([told] * 2 if told else [])


def test_what_changes_within_a_rank_and_other_jobs_are_not_compared(tmp_path: Path) -> None:
    changing = {f"rank_{r}_log": "".join(f"batch size {8 + r + i}\n" for i in range(4)) for r in range(2)}
    assert values(rank_roster(workspace(tmp_path, **changing)), "rank.setting_differs") == []
    for job, size in (("a", 8), ("b", 16)):
        (tmp_path / job).mkdir()
        for rank in range(2):
            (tmp_path / job / f"rank_{rank}.log").write_text(f"batch size {size}\nstep 1 loss 2.0\n")
    assert values(rank_roster(Workspace([tmp_path / "a", tmp_path / "b"])), "rank.setting_differs") == []
