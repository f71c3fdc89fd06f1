"""What is noticed of a job while it runs: who died first and of what, memory, steps, trouble."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from traindoctor.agent.jobs.supervisor.job_progress import Progress
from traindoctor.agent.jobs.supervisor.supervised_job import Job
from traindoctor.agent.jobs.supervisor.tree import rank_of
from traindoctor.agent.jobs.supervisor.watcher import Watcher

LAUNCHER = """
import os, subprocess, sys, time
code = "import os, time; x = bytearray(60 << 20)\\nwhile True: time.sleep(0.1)"
ranks = [subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "RANK": str(r)}) for r in range(3)]
print(*[r.pid for r in ranks], flush=True)
while all(r.poll() is None for r in ranks): time.sleep(0.1)
for r in ranks: r.terminate()
for r in ranks: r.wait()
print("ChildFailedError: rank 1", flush=True)
time.sleep(600)
"""


def until(true: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[Watcher, Path, subprocess.Popen[bytes]]]:
    """A launcher with three ranks, watched."""
    place = tmp_path / "doctor-run" / "try_1"
    place.mkdir(parents=True)
    console = place / "console.log"
    with console.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", LAUNCHER], stdout=out, stderr=out, start_new_session=True)
    watcher = Watcher(Job(["x"], tmp_path, place, process.pid, time.time(), console), lambda _: None)
    watcher.look(time.monotonic())
    yield watcher, console, process
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    watcher.ended(0)


def test_who_died_first_and_of_what(job: tuple[Watcher, Path, subprocess.Popen[bytes]]) -> None:
    """The launcher ends the others within a tenth of a second: the order and the signal are still known."""
    watcher, console, process = job
    assert until(lambda: len(console.read_text().split()) == 3)
    pids = [int(w) for w in console.read_text().split()]
    assert until(lambda: watcher.facts().get("memory", {}).get("peak_bytes", 0) > 180 << 20), watcher.facts()
    assert until(lambda: {p.pid for p in watcher._tree.all.values() if p.main} == set(pids))
    time.sleep(0.3)  # a look ends between a scan and the moment from which a death is seen at once
    os.kill(pids[1], signal.SIGKILL)
    assert until(lambda: len(watcher.facts()["died"]) == 3), watcher.facts()
    died = watcher.facts()["died"]
    assert [died[0]["rank"], died[0]["pid"]] == [1, pids[1]]
    assert died[0]["signal"] in ("SIGKILL", None)
    assert watcher.trouble
    assert until(lambda: (console.parent / "trouble" / "free.txt").exists())
    assert process.poll() is None


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("step 12 loss 2.0\n~step 13 loss 1.9\n", 13),
        ("iteration   10/ 500 | lr\n~iteration   11/ 500 | lr\n", 11),
        ("  2%|2 | 12/500 [00:01<\r~  3%|2 | 13/500 [00:02<\r", 13),
        ('{"global_step": 7, "loss": 1}\n~{"global_step": 9, "loss": 1}\n', 9),
        ("step: 1,200 loss\n~step: 1,201 loss\n", 1201),
        ("[rank1]: step=4\n[rank0]: step=4\n~[rank1]: step=5\n[rank0]: step=5\n", 5),
        ("2026/11/22 18:00:01 waiting\n~2026/11/22 18:00:02 waiting\n", None),
        ("loss 1.0 after 3.2s\n~loss 0.9 after 3.3s\n", None),
    ],
)
def test_steps_as_programs_print_them(tmp_path: Path, text: str, last: int | None) -> None:
    console = tmp_path / "console.log"
    progress = Progress(console, tmp_path / "ranks", 0.0)
    for number, part in enumerate(text.split("~"), 1):
        with console.open("a") as f:
            f.write(part)
        progress.look(float(number))
    assert progress.last == last and progress.stepping == (last is not None)


def test_gigabytes_are_not_read(tmp_path: Path) -> None:
    """Of much new output the last piece is read; a file that is cut off is followed from its new beginning."""
    console = tmp_path / "console.log"
    with console.open("wb") as f:
        f.seek(3 << 30)
        f.write(b"\nstep 5 loss\n")
    progress = Progress(console, tmp_path / "ranks", 0.0)
    began = time.thread_time()
    progress.look(1.0)
    assert time.thread_time() - began < 1.0 and progress.last == 5
    console.write_bytes(b"step 6 loss\n")
    progress.look(2.0)
    assert progress.last == 6


def test_trouble_is_the_first_line_of_it(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    console.write_text(
        "ok\nTraceback (most recent call last):\n  File\nValueError\nTraceback (most recent call last):\n"
    )
    progress = Progress(console, tmp_path / "ranks", 0.0)
    progress.look(1.0)
    assert progress.trouble == "Traceback (most recent call last):"


def test_the_rank_of_a_process() -> None:
    assert rank_of(b"A=1\0RANK=3\0LOCAL_RANK=1\0") == 3
    assert rank_of(b"LOCAL_RANK=1\0") == 1
    assert rank_of(b"MYRANK=1\0RANK=x\0") is None
