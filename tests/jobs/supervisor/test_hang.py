"""Standing still is told from being slow: jobs that hang in real ways, and ones that are silent for good reasons."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from traindoctor.agent.jobs.supervisor.job_progress import Progress
from traindoctor.agent.jobs.supervisor.supervised_job import Job
from traindoctor.agent.jobs.supervisor.tree import Tree
from traindoctor.agent.jobs.supervisor.watcher import Patience, Watcher

STEPS = "import time\nfor i in range(15): print('step', i, 'loss 1.0', flush=True); time.sleep(0.1)\n"
HANGS = {
    "a lock taken twice": STEPS + "import threading\nl = threading.Lock(); l.acquire(); l.acquire()",
    "one line again and again": STEPS + "while True: print('still waiting for peers', flush=True); time.sleep(0.3)",
}
COLLECTIVE = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method=f"file://{os.path.dirname(__file__)}/meeting", rank=int(os.environ["RANK"]), world_size=2)
for i in range(15):
    dist.all_reduce(torch.ones(2))
    if dist.get_rank() == 0: print("step", i, flush=True)
    time.sleep(0.1)
if dist.get_rank() == 1: time.sleep(600)
dist.all_reduce(torch.ones(2))
"""


def until(true: Callable[[], object], seconds: float = 60.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


class Watched:
    """A job that is started and watched here, without the rest of `doctor run`."""

    def __init__(self, folder: Path, argv: list[str], limit: float) -> None:
        place = folder / "doctor-run" / "try_1"
        place.mkdir(parents=True)
        self.console, self.place = place / "console.log", place
        self.told: list[str] = []
        with self.console.open("wb") as out:
            self.process = subprocess.Popen(
                argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True, cwd=folder
            )
        job = Job(argv, folder, place, self.process.pid, time.time(), self.console, hang_after=limit)
        self.watcher = Watcher(job, self.told.append)
        self.watcher.look(time.monotonic())

    def end(self) -> None:
        """Kill the job, whatever it is at."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.watcher.ended(0)


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """Starts jobs and ends them."""
    started: list[Watched] = []

    def start(name: str, argv: list[str], limit: float = 2.0) -> Watched:
        (tmp_path / name).mkdir()
        started.append(Watched(tmp_path / name, argv, limit))
        return started[-1]

    yield start
    ends = [threading.Thread(target=w.end) for w in started]
    for end in ends:
        end.start()
    for end in ends:
        end.join()


def test_jobs_that_hang(watched: Callable[..., Watched], tmp_path: Path) -> None:
    """Each is found, with the stacks of its processes, and is still alive then. That one goes on is told once, and its
    stacks are no evidence any more."""
    go = tmp_path / "go"
    code = f"{STEPS}import os\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)\n"
    code += "for i in range(15, 900): print('step', i, flush=True); time.sleep(0.3)"
    paused = watched("paused", [sys.executable, "-c", code])
    (tmp_path / "collective.py").write_text(COLLECTIVE)
    jobs = {name: watched(name.replace(" ", "_"), [sys.executable, "-c", code]) for name, code in HANGS.items()}
    start = f"RANK=%d WORLD_SIZE=2 {sys.executable} {tmp_path}/collective.py & "
    ranks = watched("ranks", ["sh", "-c", start % 0 + start % 1 + "wait"])
    assert until(lambda: paused.watcher.hung)
    go.touch()
    for name, job in {**jobs, "a collective": ranks}.items():
        assert until(lambda job=job: job.watcher.hung), f"{name}: {job.told} {job.console.read_text()[-400:]}"
        assert job.process.poll() is None
        hang = job.watcher.facts()["hang"]
        assert hang["last_step"] == 14 and hang["quiet_seconds"] >= hang["limit_seconds"] >= 2
        stacks = [(job.place / s).read_text() for s in hang["stacks"]]
        assert any("Thread " in text for text in stacks), f"{name}: {hang} {stacks}"
    names = [Path(s).name for s in ranks.watcher.facts()["hang"]["stacks"]]
    assert sorted(n.split("_pid")[0] for n in names) == ["rank_0", "rank_1"]
    assert until(lambda: not paused.watcher.hung)
    assert paused.watcher.facts()["hang"]["went_on"] is True
    assert sum("goes on" in line for line in paused.told) == 1
    assert not (paused.place / "stacks").exists()


class Clocked:
    """A real, sleeping process and an output that the test writes, seen by a clock of the test."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.process = subprocess.Popen(["sleep", "600"], start_new_session=True)
        self.tree = Tree(self.process.pid)
        self.tree.scan()
        self.tree.all[self.process.pid].state = "S"  # it may just have begun
        self.console = folder / "console.log"
        self.console.touch()
        self.progress = Progress(self.console, folder / "ranks", 0.0)
        self.patience = Patience(limit, 0.0)
        self.now = 0.0
        self.still_at: float | None = None

    def works(self, seconds: int, pid: int = 0) -> None:
        """The time passes in silence while a process uses all of a processor."""
        for _ in range(seconds):
            self.tree.all[pid or self.process.pid].cpu += 1.0
            self.goes(1)

    def goes(self, seconds: float, text: str = "") -> None:
        """The text comes; then so much time passes, seen each second."""
        with self.console.open("a") as f:
            f.write(text)
        for _ in range(max(1, int(seconds))):
            self.now += min(seconds, 1.0)
            self.progress.look(self.now)
            if self.patience.look(self.now, self.progress, self.tree) and self.still_at is None:
                self.still_at = self.now


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Callable[[float], Clocked]]:
    """Makes one, and ends its process."""
    made: list[Clocked] = []

    def make(limit: float) -> Clocked:
        made.append(Clocked(tmp_path, limit))
        return made[-1]

    yield make
    for one in made:
        one.process.kill()
        one.process.wait()


def test_ten_times_the_usual_step_is_allowed(clocked: Callable[[float], Clocked]) -> None:
    job = clocked(60)
    for step in range(5):
        job.goes(100, f"step {step} loss 2.0\n")
    job.goes(890)
    assert job.still_at is None
    job.goes(300)
    assert job.still_at is not None


def test_the_limit_holds_for_fast_steps(clocked: Callable[[float], Clocked]) -> None:
    job = clocked(600)
    for step in range(50):
        job.goes(1, f"{{'loss': 2.0, 'step': {step}}}\n")
    job.goes(590)
    assert job.still_at is None
    job.goes(30)
    assert job.still_at is not None


def test_output_that_comes_in_blocks(clocked: Callable[[float], Clocked]) -> None:
    """Steps of a second, of which 300 come at a time: the silence between two blocks is usual."""
    job = clocked(60)
    for block in range(4):
        job.goes(300, "".join(f"iteration {block * 300 + n}/9000 | loss 2.0\n" for n in range(300)))
    assert job.still_at is None


def test_a_process_at_work(clocked: Callable[[float], Clocked]) -> None:
    """An evaluation that prints nothing burns the processor: six times the limit are allowed, not more."""
    job = clocked(60)
    for step in range(20):
        job.goes(1, f"step {step} loss 2.0\n")
    job.works(340)
    assert job.still_at is None
    job.works(60)
    assert job.still_at is not None


@pytest.mark.parametrize("who", ["a rank that waits", "what a rank started"])
def test_of_several_ranks(clocked: Callable[[float], Clocked], who: str) -> None:
    """A rank spins while it waits for the others; a program that it started does not."""
    job = clocked(60)
    for rank in range(3):
        twin = dataclasses.replace(job.tree.all[job.process.pid], pid=-rank - 1, rank=rank, main=True, python=True)
        job.tree.all[twin.pid] = twin
    for step in range(20):
        job.goes(1, f"step {step} loss 2.0\n")
    job.works(100, -1 if who == "a rank that waits" else job.process.pid)
    assert (job.still_at is not None) == (who == "a rank that waits")


def test_a_long_evaluation_with_a_bar(clocked: Callable[[float], Clocked]) -> None:
    job = clocked(60)
    for step in range(20):
        job.goes(1, f"step {step} loss 2.0\n")
    for batch in range(30):
        job.goes(50, f"\rEvaluating: {batch}/30 [00:00<00:10]\r")
    assert job.still_at is None


def test_before_the_first_step(clocked: Callable[[float], Clocked]) -> None:
    """Loading has come to its end, then the first step is compiled: no counter says anything of how long that takes."""
    job = clocked(60)
    for shard in range(1, 5):
        job.goes(1, f"\rLoading checkpoint shards: {shard}/4\r")
    job.goes(1000, "compiling\n")
    assert job.still_at is None


def test_never(clocked: Callable[[float], Clocked]) -> None:
    job = clocked(0)
    for step in range(5):
        job.goes(1, f"step {step}\n")
    job.goes(5000)
    assert job.still_at is None


def test_a_stopped_process_is_no_hang(clocked: Callable[[float], Clocked]) -> None:
    """Somebody pressed Ctrl-Z: the time does not count."""
    job = clocked(60)
    job.tree.all[job.process.pid].main = True
    for step in range(5):
        job.goes(1, f"step {step}\n")
    os.kill(job.process.pid, signal.SIGSTOP)
    assert until(lambda: (job.tree.scan(), job.tree.all[job.process.pid].state)[1] == "T")
    job.tree.all[job.process.pid].main = True
    job.goes(300)
    assert job.still_at is None
