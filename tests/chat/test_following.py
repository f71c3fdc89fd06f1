"""A running job is followed through its files: what is told, once, and when a diagnosis is asked for."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from traindoctor.agent.chat.chat_following import Following, Look
from traindoctor.agent.reading.curves.curves import curves

# A job that does what its standard input says, one line at a time, and answers when it is on disk.
JOB = """
import sys
with open(sys.argv[1], "a", buffering=1) as log:
    step = 0
    for order in sys.stdin:
        what, _, count = order.strip().partition(" ")
        for _ in range(int(count or 1)):
            if what == "end":
                log.write("Traceback (most recent call last):\\n  File \\"train.py\\", line 9, in <module>\\n"
                          "    step()\\nValueError: loss is not finite\\n")
                sys.exit(1)
            step += 1
            log.write(f"step {step} | loss {what} | lr 1e-4\\n")
        print(step, flush=True)
"""


class Clock:
    """Time as the test wants it."""

    def __init__(self) -> None:
        self.time = time.time()

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Tells a real process what to write into `run/train.log`, and waits until it has."""
    log = tmp_path / "run" / "train.log"
    log.parent.mkdir()
    child = subprocess.Popen(
        [sys.executable, "-c", JOB, str(log)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin and child.stdout

    def order(what: str) -> None:
        assert child.stdin and child.stdout
        child.stdin.write(what + "\n")
        child.stdin.flush()
        child.stdout.readline()

    yield order
    child.stdin.close()
    child.wait(10)
    child.stdout.close()


def after(following: Following, clock: Clock, seconds: float) -> Look:
    clock.time += seconds
    return following.look()


def test_a_job_that_writes_steps_then_nan_then_dies(tmp_path: Path, job: Callable[[str], None], clock: Clock):
    following = Following([tmp_path / "later"], now=clock)
    assert following.look().told == (f"waiting for {tmp_path / 'later'}: it is not there yet",)
    assert not following.look().told, "it was said already"
    following = Following([tmp_path / "run"], now=clock)
    look = following.look()
    assert look.pulse.state == "waiting" and look.told == ("nothing to follow yet: no log and no metrics in it",)
    job("2.5 40")
    look = after(following, clock, 2)
    assert (look.pulse.state, look.pulse.step, look.pulse.loss) == ("running", 40, 2.5)
    assert look.workspace is not None and [s.metric for s in curves(look.workspace).series if s.metric == "loss"]
    job("2.4 10")
    look = after(following, clock, 20)
    assert look.pulse.step == 50 and look.pulse.pace == pytest.approx(2.0) and not look.told
    job("9.5")
    assert after(following, clock, 2).told == ("the loss jumps to 9.5 at step 51",)
    job("nan 3")
    look = after(following, clock, 6)
    assert look.told == ("the loss is not finite at step 52",) and look.troubles == set(look.told)
    assert look.pulse.not_finite == 52 and not look.diagnose, "what comes after it says what it is"
    job("nan 3")
    look = after(following, clock, 20)
    assert not look.told and look.diagnose == "the loss is not finite at step 52"
    (loss,) = (s for s in curves(look.workspace).series if s.metric == "loss") if look.workspace else ()
    assert loss.nans == 6, "the readings of the diagnosis hold what it is about"
    job("nan 3")
    assert not after(following, clock, 30).diagnose, "once"
    job("end")
    assert after(following, clock, 2).told == ("train.log has a traceback",)
    look = after(following, clock, 60)
    assert look.pulse.state == "died" and look.diagnose == "the job died" and look.workspace is not None
    assert not after(following, clock, 600).told, "an end is told once"


def test_a_stall_is_told_against_what_a_step_takes_and_taken_back(
    tmp_path: Path, job: Callable[[str], None], clock: Clock
):
    following = Following([tmp_path / "run"], now=clock)
    for _ in range(4):
        job("2.0 5")
        look = after(following, clock, 10)
    assert look.pulse.pace == pytest.approx(2.0)
    assert [after(following, clock, s).told for s in (12, 100)] == [(), ()], "a checkpoint may take so long"
    look = after(following, clock, 38)
    assert look.told == ("no new line for 2 min; a step takes 2 s",) and not look.troubles and not look.diagnose
    assert look.pulse.state == "silent"
    assert not after(following, clock, 60).told
    look = after(following, clock, 120)
    assert (
        look.told == ("it hangs or was killed: no new line for 6 min; a step takes 2 s",)
        and look.diagnose == look.told[0]
    )
    assert look.troubles == set(look.told)
    job("2.0 5")
    look = after(following, clock, 10)
    assert look.told == ("the job goes on: new lines",) and look.pulse.state == "running"


def test_files_that_are_cut_replaced_or_gone_and_a_folder_that_vanishes(tmp_path: Path, clock: Clock):
    run = tmp_path / "run"
    run.mkdir()
    steps = "".join(f"step {s} | loss 3.0\n" for s in range(1, 41))
    for name in ("a.log", "b.log", "c.log", "d\x1b[31m.log"):
        (run / name).write_text(steps)
    following = Following([run], now=clock)
    assert following.look().pulse.step == 40
    (run / "a.log").write_text("step 7 | loss 2.0\n")
    (run / "b.log").rename(run / "b.log.1")
    (run / "b.log").write_text("step 8 | loss 2.0\n")
    (run / "c.log").unlink()
    (run / "d\x1b[31m.log").unlink()
    look = after(following, clock, 30)
    assert look.pulse.step == 40, "the renamed file is new to us"
    told = " / ".join(look.told)
    assert "a.log: cut short" in told and "b.log: replaced" in told and "c.log, d\\x1b[31m.log: gone" in told
    assert "\x1b" not in told
    with (run / "a.log").open("a") as log:
        log.write("step 9 | loss 2.0\nstep 10 | lo")
    look = after(following, clock, 30)
    assert (look.pulse.step, look.told) == (9, ()), "half a line is not read"
    with (run / "a.log").open("a") as log:
        log.write("ss 1.5\n")
    look = after(following, clock, 30)
    assert (look.pulse.step, look.pulse.loss) == (10, 1.5)
    shutil.rmtree(run)
    look = after(following, clock, 30)
    assert look.pulse.state == "gone" and "is not there any more" in look.told[0] and look.workspace is None
    assert not after(following, clock, 30).told
    run.mkdir()
    (run / "a.log").write_text("step 1 | loss 9.0\n")
    look = after(following, clock, 30)
    assert look.told[0] == "its folder is there again" and look.pulse.step == 1


def test_a_job_that_had_ended_before_is_not_said_to_run(tmp_path: Path, clock: Clock):
    (tmp_path / "train.log").write_text("".join(f"step {s} | loss 3.0\n" for s in range(9)) + "Training completed.\n")
    clock.time += 7200
    following = Following([tmp_path], now=clock)
    look = following.look()
    assert look.pulse.state == "waiting" and not look.told
    look = after(following, clock, 2)
    assert look.pulse.state == "finished" and look.told == ("the job came to its end",)
    assert not look.diagnose and not look.troubles, "a job that ended well asks for nothing"


def test_an_end_after_nan_is_no_good_one(tmp_path: Path, clock: Clock):
    (tmp_path / "train.log").write_text("step 1 | loss 3.0\nstep 2 | loss nan\nTraining completed.\n")
    clock.time += 60
    following = Following([tmp_path], now=clock)
    assert following.look().told == ("the loss is not finite at step 2 at the latest",)
    look = after(following, clock, 2)
    assert look.pulse.state == "finished" and look.troubles == set(look.told)
    assert look.told == ("the job came to its end; its loss was not finite at step 2",)
    assert after(following, clock, 20).diagnose == "the loss is not finite at step 2"


def test_metrics_of_tensorboard_alone_are_followed(tmp_path: Path, clock: Clock):
    writer = pytest.importorskip("torch.utils.tensorboard").SummaryWriter(str(tmp_path))
    following = Following([tmp_path], now=clock)
    for start in (0, 30, 60):
        for step in range(start, start + 30):
            writer.add_scalar("train/loss", 3.0 if step < 70 else float("nan"), step)
        writer.flush()
        look = after(following, clock, 30)
    assert (look.pulse.step, look.pulse.not_finite, look.pulse.pace) == (89, 70, pytest.approx(1.0))
    assert look.told == ("the loss is not finite at step 70",)
    writer.close()


def test_two_hundred_ranks_cost_little_and_looking_backs_off(tmp_path: Path, clock: Clock):
    for rank in range(200):
        (tmp_path / f"rank{rank}.log").write_text("".join(f"step {s} | loss 3.0 | grad_norm 1.0\n" for s in range(60)))
    (tmp_path / "model.bin").write_bytes(b"\0" * 4096)
    following = Following([tmp_path], now=clock)
    first = following.look()
    assert first.pulse.files == 201 and first.pulse.step == 59
    assert first.pulse.wait >= 2.0
    assert first.workspace is None, "how it stands comes before the whole is read"
    assert after(following, clock, 1).workspace is not None
    assert after(following, clock, 1).workspace is None, "nothing has changed: nothing is read"
    (tmp_path / "model.bin").write_bytes(b"\0" * 9000)
    assert after(following, clock, 1).pulse.grown == first.pulse.grown, "a checkpoint that grows is no line"
    tracemalloc.start()
    held = []
    for turn in range(3):
        for rank in range(200):
            with (tmp_path / f"rank{rank}.log").open("a") as log:
                log.write(f"step {200 + turn} | loss 3.0 | grad_norm 1.0\n")
        look = after(following, clock, 1)
        assert look.pulse.step == 200 + turn and look.workspace is None, "the whole was read just now"
        held.append(tracemalloc.get_traced_memory()[0])
        del look
    tracemalloc.stop()
    assert after(following, clock, 1000).workspace is not None
    assert held[2] - held[1] < 200_000, "memory does not grow with what is read"
