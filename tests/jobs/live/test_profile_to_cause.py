"""From what a profiler saw to the cause: real traces, the whole diagnosis. Those are kept beside the tests' caches."""

from __future__ import annotations

import subprocess
from pathlib import Path

from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

from tests.jobs.live.jobs import BIN
from tests.jobs.supervised.started import kept
from tests.tools.test_profiles import SCRIPT, traced


def report(run: Path, question: str, state: Path) -> Report:
    """The report of a whole diagnosis."""
    *_, last = diagnose(Workspace([run]), question, state=state)
    return last.report  # pyright: ignore[reportAttributeAccessIssue]


def test_a_slow_loader(tmp_path: Path) -> None:
    run = kept("trace_loader", SCRIPT.encode(), lambda folder: traced(folder, "loader")) / "run"
    made = report(run, "training is slow, why?", tmp_path)
    assert made.root_cause and made.root_cause.id == "speed.data_starvation", made.differential[:3]
    assert any(e.key == "profile.data_fraction" for e in made.evidence)


def test_values_read_in_the_hot_loop(tmp_path: Path) -> None:
    run = kept("trace_item", SCRIPT.encode(), lambda folder: traced(folder, "item")) / "run"
    made = report(run, "each step is slow although the model is small", tmp_path)
    assert made.root_cause and made.root_cause.id == "speed.host_sync", made.differential[:3]
    assert any(e.key == "profile.items_per_step" and e.value == 20 for e in made.evidence)


DDP = """
import sys, time, torch, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
handler = tensorboard_trace_handler("traces", worker_name=f"rank{rank}")
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=4, repeat=1),
             on_trace_ready=handler) as p:
    for _ in range(7):
        if rank == 1:
            time.sleep(0.2)
        model(torch.randn(4, 256)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        p.step()
dist.destroy_process_group()
"""


def _ranks(folder: Path) -> None:
    (folder / "ddp.py").write_text(DDP)
    argv = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", "ddp.py"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_traces_of_ranks_name_the_straggler(tmp_path: Path) -> None:
    made = report(kept("trace_ranks", DDP.encode(), _ranks) / "traces", "the steps are slow on two ranks", tmp_path)
    assert made.root_cause and made.root_cause.id == "speed.straggler", made.differential[:3]
    assert [e.rank for e in made.evidence if e.key == "profile.slow_rank"] == [1]
