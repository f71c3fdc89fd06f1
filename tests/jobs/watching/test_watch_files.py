"""Files as jobs leave them: rotated, cut, late, of every format, of many ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.jobs.watching.live import DEADLINE, job, until, watching

_BEGIN = "for n in range(1, 61): step(n)\nwait()\n"


def test_a_copy_and_truncate_tells_nothing_twice_and_misses_nothing(tmp_path: Path) -> None:
    script = (
        "step(61, float('nan'))\nwait('cut')\nfor n in range(62, 101): step(n)\n"
        "import shutil; shutil.copy(folder / 'train.log', folder / 'train.log.1'); os.truncate(folder / 'train.log', 0)\n"
        "for n in range(101, 140): step(n)\nstep(140, float('nan'))\nwait('end')"
    )
    with job(_BEGIN + script, tmp_path), watching(tmp_path, "--only", "loss_nan") as watch:
        (tmp_path / "go").touch()
        watch.first("loss_nan")
        (tmp_path / "cut").touch()
        until(lambda: len(watch.said) >= 2, "the second was missed")
        (tmp_path / "late.log").write_text("step 1 loss 2.0\n")  # a walk, which sees the copy
        (tmp_path / "end").touch()
    assert [(a["step"], a["line"], a["file"]) for a in watch.said] == [
        (61.0, 61, "train.log"),
        (140.0, 40, "train.log"),
    ]


def test_a_file_that_is_renamed_is_read_to_its_end(tmp_path: Path) -> None:
    script = (
        "os.rename(folder / 'train.log', folder / 'train.log.1')\nstep(61, float('nan'))\n"
        "log = open(folder / 'train.log', 'a', buffering=1)\nfor n in range(62, 100): step(n)\n"
        "step(100, float('nan'))\nwait('end')"
    )
    (tmp_path / "before.log").write_text("step 5000 loss 2.0\nstep 5001 loss nan\n")
    with job(_BEGIN + script, tmp_path), watching(tmp_path, "--only", "loss_nan") as watch:
        until(lambda: (tmp_path / "train.log").exists(), "nothing written")
        watch.first("loss_nan")  # it follows
        (tmp_path / "go").touch()
        until(lambda: len(watch.said) >= 3, "one was missed")
    assert [(a["step"], a["line"], a["again"]) for a in watch.said[1:]] == [(61.0, 61, False), (100.0, 39, True)]


def test_a_folder_and_a_file_that_come_later(tmp_path: Path) -> None:
    with watching(tmp_path / "later", "--only", "loss_nan") as watch:
        (tmp_path / "later" / "deep er" / "ранк").mkdir(parents=True)
        (tmp_path / "later" / "deep er" / "ранк" / "a.log").write_text("step 1 loss 2.0\nstep 2 loss nan\n")
        alarm = watch.first("loss_nan")
    assert (alarm["file"], alarm["line"]) == ("deep er/ранк/a.log", 2)


def test_a_file_that_vanishes_is_no_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("step 1 loss 2.0\nstep 2 loss nan\n")
    with watching(tmp_path, "--only", "loss_nan") as watch:
        watch.first("loss_nan")
        log.unlink()
        (tmp_path / "b.log").write_text("step 10 loss 2.0\nstep 20 loss nan\n")
        until(lambda: len(watch.said) >= 2, "the other file was not followed")
    assert [a["file"] for a in watch.said] == ["a.log", "b.log"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        (
            "metrics.jsonl",
            "".join(json.dumps({"step": n, "loss": 2.0 if n < 9 else float("nan")}) + "\n" for n in range(10)),
            10,
        ),
        ("metrics.csv", "step,loss,lr\n" + "".join(f"{n},{2.0 if n < 9 else 'nan'},0.1\n" for n in range(10)), 11),
        ("train.log", "{'loss': 2.0, 'epoch': 0.1}\n{'loss': nan, 'epoch': 0.2}\n", 2),
        (
            "out.txt",
            "Epoch 0: 10/50 [00:01<00:04, 9.00it/s, loss=2.0]\rEpoch 0: 11/50 [00:01<00:04, 9.00it/s, loss=nan]\r",
            1,
        ),
    ],
)
def test_each_format(name: str, text: str, line: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with watching(tmp_path, "--once", "--only", "loss_nan") as watch:
        alarm = watch.first("loss_nan")
        assert watch.process.wait(DEADLINE) == 1
    assert (alarm["file"], alarm["line"], alarm["earlier"]) == (name, line, True)


def test_the_trainers_state_is_told_once_however_many_checkpoints_hold_it(tmp_path: Path) -> None:
    for n in (10, 20, 30):
        state = tmp_path / f"checkpoint-{n}" / "trainer_state.json"
        state.parent.mkdir()
        history = [{"step": k, "loss": 2.0 if k != 5 else float("nan")} for k in range(1, n + 1)]
        state.write_text(json.dumps({"global_step": n, "log_history": history}, indent=1))
    with watching(tmp_path, "--once", "--only", "loss_nan") as watch:
        assert watch.first("loss_nan")["step"] == 5.0
        watch.process.wait(DEADLINE)
    assert len(watch.said) == 1


def test_tensorboard_while_it_is_written(tmp_path: Path) -> None:
    script = (
        "from torch.utils.tensorboard import SummaryWriter\n"
        "w = SummaryWriter(str(folder / 'tb'), flush_secs=1)\n"
        "for n in range(30): w.add_scalar('train/loss', 2.0, n)\nw.flush()\nwait()\n"
        "w.add_scalar('train/loss', float('nan'), 30); w.flush()\nstay()"
    )
    with job(script, tmp_path), watching(tmp_path, "--only", "loss_nan") as watch:
        until(lambda: list(tmp_path.glob("tb/events*")), "nothing written")
        (tmp_path / "go").touch()
        alarm = watch.first("loss_nan")
    assert alarm["step"] == 30.0
    assert alarm["file"].startswith("tb/events.out.tfevents")


def test_odd_files_block_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "zero.log").write_bytes(bytes(10_000))
    (tmp_path / "wide.log").write_bytes(b"x" * (3 << 20))
    (tmp_path / "broken.csv").write_bytes(b"step,loss\n1,\xff\n,,,\n3,nan\n")
    with watching(tmp_path, "--once", "--only", "loss_nan") as watch:
        assert watch.first("loss_nan")["file"] == "broken.csv"
        assert watch.process.wait(DEADLINE) == 1


def test_a_thousand_rank_logs(tmp_path: Path) -> None:
    for rank in range(1024):
        (tmp_path / f"rank_{rank}.log").write_text("".join(f"step {n} loss 2.0\n" for n in range(10)))
    with watching(tmp_path, "--only", "loss_nan") as watch:
        with (tmp_path / "rank_777.log").open("a") as log:
            log.write("step 10 loss inf\n")
        alarm = watch.first("loss_nan")
    assert (alarm["rank"], alarm["line"]) == (777, 11)
