"""What was asked for and not done, vocabularies that were exchanged, and batches that were taken twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import compare_rows, find_anomalies
from traindoctor.agent.tools.settings.settings_tools import compare_settings

SUMMARY = "{'train_runtime': '3.5', 'train_samples_per_second': '90', 'train_loss': '2.2', 'epoch': '%s'}\n"
WORDS = [f"word{n}" for n in range(30)]


def told(folder: Path, tool=compare_settings, key: str = "compare.asked_not_done") -> list[tuple[str | None, object]]:
    return [(e.file, e.value) for e in tool(Workspace([folder])).evidence if e.key == key]


@pytest.mark.parametrize(
    ("config", "end", "done"),
    [
        ('{"num_train_epochs": 5, "max_steps": 30}', SUMMARY % "0.5", 0.5),
        ('{"num_train_epochs": 3}', "INFO: `Trainer.fit` stopped: `max_steps=200` reached.\n", None),
        ('{"num_train_epochs": 3}', "{'train_runtime': 12.1, 'epoch': 1.02}\n", 1.02),
    ],
)
def test_epochs_that_never_came(tmp_path: Path, config: str, end: str, done: float | None) -> None:
    (tmp_path / "args.json").write_text(config)
    (tmp_path / "train.log").write_text("{'loss': '3.9', 'learning_rate': '0.001', 'epoch': '0.1'}\n" + end)
    found = told(tmp_path)
    assert {f for f, _ in found} == {"args.json", "train.log"}
    assert all(
        v == {"name": "epochs", "asked": float(json.loads(config)["num_train_epochs"]), "done": done} for _, v in found
    )


@pytest.mark.parametrize(
    ("config", "log"),
    [
        ('{"num_train_epochs": 5}', SUMMARY % "5"),
        ('{"num_train_epochs": 5}', SUMMARY % "4.96"),
        ('{"num_train_epochs": 5}', "early stopping: no gain for 3 evaluations\n" + SUMMARY % "2.0"),
        ('{"max_steps": 30}', SUMMARY % "0.5"),
        ('{"num_train_epochs": 5}', "{'loss': '3.9', 'epoch': '0.1'}\n"),  # it has not ended yet
    ],
)
def test_ends_that_were_meant(tmp_path: Path, config: str, log: str) -> None:
    (tmp_path / "args.json").write_text(config)
    (tmp_path / "train.log").write_text(log)
    assert told(tmp_path) == []


def test_a_later_start_that_went_all_the_way(tmp_path: Path) -> None:
    (tmp_path / "args.json").write_text('{"num_train_epochs": 5}')
    (tmp_path / "first.log").write_text(SUMMARY % "2.0")
    (tmp_path / "second.log").write_text(SUMMARY % "5.0")
    assert told(tmp_path) == []


def rates(*values: float, first: int = 5) -> str:
    return "".join(f"step {first + 5 * n} loss {3 - 0.1 * n:.2f} lr {v:.2e}\n" for n, v in enumerate(values))


@pytest.mark.parametrize(
    ("log", "count"),
    [
        (rates(5e-3, 5e-3, 5e-3, 5e-3), 1),  # a constant schedule
        (rates(1e-3, 9e-4, 8e-4, 7e-4), 1),  # one that only falls
        (rates(1e-4, 2e-4, 3e-4, 4e-4), 0),  # a warm-up
        (rates(1e-3, 9e-4, 8e-4, first=900), 0),  # resumed behind it
    ],
)
def test_a_warm_up_that_never_was(tmp_path: Path, log: str, count: int) -> None:
    (tmp_path / "train.yaml").write_text("warmup_steps: 100\nlearning_rate: 1.0e-3\nbatch_size: 8\n")
    (tmp_path / "train.log").write_text(log)
    assert len({str(v) for _, v in told(tmp_path)}) == count


def vocabularies(folder: Path, second: list[str], base: str = "base: runs/base\n") -> None:
    (folder / "old.json").write_text(json.dumps({w: n for n, w in enumerate(WORDS)}))
    (folder / "new.json").write_text(json.dumps({w: n for n, w in enumerate(second)}))
    (folder / "base.yaml").write_text("vocab: old.json\nlr: 1.0e-3\nout: runs/base\n")
    (folder / "tune.yaml").write_text(f"{base}vocab_file: new.json\nlr: 1.0e-4\nout: runs/tuned\n")


def test_the_same_words_under_other_numbers(tmp_path: Path) -> None:
    vocabularies(tmp_path, WORDS[::-1])
    found = told(tmp_path, key="compare.vocabulary_differs")
    assert {f for f, _ in found} == {"base.yaml", "tune.yaml"}
    assert "30 of 30 words" in str(found[0][1])


def test_words_that_were_added_and_runs_of_their_own(tmp_path: Path) -> None:
    vocabularies(tmp_path, [*WORDS, "more"])
    assert told(tmp_path, key="compare.vocabulary_differs") == []
    vocabularies(tmp_path, WORDS[::-1], base="")
    assert told(tmp_path, key="compare.vocabulary_differs") == []


def batches(start: int | str, first: int, n: int = 12) -> str:
    return "".join(
        f"{start}," + ",".join(str((37 * (first + 5 * i + j)) % 997) for j in range(5)) + "\n" for i in range(n)
    )


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_a_resumed_run_takes_the_same_batches(tmp_path: Path, form: str) -> None:
    (tmp_path / "second.log").write_text("resuming from checkpoint-120\nstep 121 loss 2.1\n")
    rows = batches(311, 0) + batches(312, 0)
    if form == "jsonl":
        lists = [line.split(",") for line in rows.splitlines()]
        rows = "".join(json.dumps({"job": a, "ids": [int(i) for i in ids]}) + "\n" for a, *ids in lists)
    (tmp_path / f"batches.{form}").write_text(rows)
    found = told(tmp_path, compare_rows, "resume.samples_repeated")
    assert [v for _, v in found] == ["12 batches"] * 2
    (tmp_path / f"batches.{form}").write_text(rows.replace("311", "312"))  # one start that goes round
    assert told(tmp_path, compare_rows, "resume.samples_repeated") == []


def test_other_batches_and_runs_that_were_never_resumed(tmp_path: Path) -> None:
    (tmp_path / "second.log").write_text("resuming from checkpoint-120\nstep 121 loss 2.1\n")
    (tmp_path / "batches.csv").write_text(batches(311, 0) + batches(312, 60))
    assert told(tmp_path, compare_rows, "resume.samples_repeated") == []
    (tmp_path / "second.log").write_text("resume_from_checkpoint: None\nstep 1 loss 2.1\n")
    (tmp_path / "batches.csv").write_text(batches(0, 0) + batches(1, 0))
    assert told(tmp_path, compare_rows, "resume.samples_repeated") == []


def test_data_that_a_resume_was_told_not_to_skip(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("ignore_data_skip: true\nlearning_rate: 1.0e-4\n")
    log = "".join(f"step {n} loss {3 - 0.01 * n:.3f}\n" for n in range(121, 140))
    (tmp_path / "job.log").write_text("resume from None\n" + log)
    assert told(tmp_path, find_anomalies, "resume.data_skip_off") == []
    (tmp_path / "job.log").write_text("resume from runs/desk/checkpoint-120\n" + log)
    assert told(tmp_path, find_anomalies, "resume.data_skip_off") == [("config.yaml", True)]


def test_two_logs_of_which_one_says_that_nothing_was_resumed(tmp_path: Path) -> None:
    one = [
        f"{{'loss': '{2 - n / 50:.3f}', 'learning_rate': '{4e-3 - n * 1e-5:.6f}', 'epoch': '{0.1 * n:.1f}'}}\n"
        for n in range(20)
    ]
    new = [
        f"{{'loss': '{1.6 - n / 50:.3f}', 'learning_rate': '{4e-4 + n * 1e-5:.6f}', 'epoch': '{0.1 * n:.1f}'}}\n"
        for n in range(20)
    ]
    (tmp_path / "a.log").write_text("resume from None\n" + "".join(one))
    (tmp_path / "b.log").write_text("resume from out/checkpoint-150\n" + "".join(new))
    assert told(tmp_path, find_anomalies, "resume.lr_reset") == [("b.log", 0.0004)]
