"""From what a profiler or a sampler saw to the cause: real artefacts, the whole diagnosis."""

from __future__ import annotations

import sys
from pathlib import Path

from traindoctor.agent.events import ReportReady
from traindoctor.agent.report import Report
from traindoctor.agent.session import diagnose
from traindoctor.agent.tools.profiles import sample_stacks
from traindoctor.agent.types import Risk
from traindoctor.agent.workspace import Workspace

from tests.live.jobs import BIN, skip_where_attaching_is_forbidden, started, torchrun, wait_for
from tests.tools.test_profiles import traced


def report(ws: Workspace, question: str, folder: Path, allow: Risk = Risk.READ) -> Report:
    """The report of a whole diagnosis."""
    events = list(diagnose(ws, question, state=folder / "state", allow=allow))
    assert isinstance(events[-1], ReportReady)
    return events[-1].report


def test_a_slow_loader(tmp_path: Path) -> None:
    run = traced(tmp_path, "loader")
    made = report(Workspace([run]), "training is slow, why?", tmp_path)
    assert made.root_cause and made.root_cause.id == "speed.data_starvation", made.differential[:3]
    assert any(e.key == "profile.data_fraction" for e in made.evidence)


def test_values_read_in_the_hot_loop(tmp_path: Path) -> None:
    run = traced(tmp_path, "item")
    made = report(Workspace([run]), "each step is slow although the model is small", tmp_path)
    assert made.root_cause and made.root_cause.id == "speed.host_sync", made.differential[:3]
    assert any(e.key == "profile.items_per_step" and e.value == 20 for e in made.evidence)


def test_a_hanging_loader_of_a_live_job(tmp_path: Path) -> None:
    skip_where_attaching_is_forbidden()
    with torchrun("forked_lock", tmp_path) as job:
        ws = Workspace([tmp_path], pids=(job.pid,))
        made = report(ws, "the job hangs, what is it waiting for?", tmp_path, Risk.PROBE)
    # the kernel log of a shared machine does not speak of this job
    assert made.root_cause and made.root_cause.id == "data.loader_crash", made.differential[:3]
    assert any(e.key == "stack.forked_lock" and e.kind == "command" for e in made.evidence)


def test_samples_of_a_loop_that_waits_for_data(tmp_path: Path) -> None:
    skip_where_attaching_is_forbidden()
    code = (
        "import time, torch\nfrom torch.utils.data import DataLoader, Dataset\n"
        "class Slow(Dataset):\n    def __len__(self):\n        return 100000\n"
        "    def __getitem__(self, i):\n        time.sleep(0.02)\n        return torch.ones(2)\n"
        "print('ready', flush=True)\nfor batch in DataLoader(Slow(), batch_size=4):\n    batch.sum()\n"
    )
    (tmp_path / "train.py").write_text(code)
    with started([sys.executable, "train.py"], tmp_path) as job:
        wait_for(tmp_path / "job.log", "ready")
        result = sample_stacks(Workspace([tmp_path], pids=(job.pid,), may_be_empty=True), seconds=2.0)
    assert result.outcome == "finding", result.summary
    shares = {e.text.strip(): e.value for e in result.evidence if e.key == "profile.sampled_fraction"}
    data = [e.value for e in result.evidence if e.key == "profile.data_fraction"]
    assert data and data[0] > 0.5, shares
    assert any("train.py" in str(e.value) for e in result.evidence if e.key == "profile.sampled_frame")


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
print("ready", flush=True)
"""


def test_traces_of_ranks_name_the_straggler(tmp_path: Path) -> None:
    (tmp_path / "ddp.py").write_text(DDP)
    with started([str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2", "ddp.py"], tmp_path) as job:
        wait_for(tmp_path / "job.log", "ready", 2)
        job.wait(30)
    made = report(Workspace([tmp_path / "traces"]), "the steps are slow on two ranks", tmp_path)
    assert made.root_cause and made.root_cause.id == "speed.straggler", made.differential[:3]
    assert [e.rank for e in made.evidence if e.key == "profile.slow_rank"] == [1]


def test_a_rank_that_stands_in_its_own_code_is_told_though_no_cause_is(tmp_path: Path) -> None:
    skip_where_attaching_is_forbidden()
    with torchrun("user_code", tmp_path, ranks=3) as job:
        made = report(Workspace([tmp_path], pids=(job.pid,)), "it hangs, why?", tmp_path, Risk.PROBE)
    said = " ".join(s.text for s in made.summary)
    assert "Rank 2 stands elsewhere than the others" in said and "prepare_answer" in said, said
    assert made.status in ("insufficient_evidence", "hypothesis"), "where it stands is no cause"
    assert "rank 2" in made.next_steps[0] and "prepare_answer" in made.next_steps[0]
