"""Real jobs in which one rank gets stuck, dumped while they hang: the odd one is named, by the tool and by the report."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.core.report import Report
from traindoctor.agent.core.types import Risk, ToolResult
from traindoctor.agent.reading.machine.job_processes import processes
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.time.profiles_tools import sample_stacks
from traindoctor.agent.tools.time.stacks_tools import dump_stacks

from tests.jobs.live.jobs import skip_where_attaching_is_forbidden, started, torchrun, two_ranks, wait_for

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")


def look(pids: tuple[int, ...], folder: Path) -> ToolResult:
    """The tool's answer about these processes."""
    result = dump_stacks(Workspace([folder], pids=pids, may_be_empty=True))
    if result.outcome == "failed" and "permission" in result.summary:
        pytest.skip(result.summary)
    for e in result.evidence:
        assert dump_stacks.allows(e.key), e.key
    return result


def values(result: ToolResult, key: str) -> list:
    """Values of a key, in order."""
    return [e.value for e in result.evidence if e.key == key]


def report(folder: Path, question: str, *pids: int) -> Report:
    """The report of a whole diagnosis that may attach."""
    *_, last = diagnose(Workspace([folder], pids=pids), question, state=folder / "state", allow=Risk.PROBE)
    return last.report  # pyright: ignore[reportAttributeAccessIssue]


def test_one_rank_sleeps_in_user_code(tmp_path: Path) -> None:
    """Also without a pid where the ranks work in the run; the report tells where it stands though that is no cause."""
    elsewhere = tmp_path / "other"
    elsewhere.mkdir()
    (elsewhere / "train.log").write_text("step 1 loss 2.0\n")
    with torchrun("user_code", tmp_path, 3) as job:
        result = look((job.pid,), tmp_path)
        found = dump_stacks(Workspace([tmp_path], live=True))
        other = dump_stacks(Workspace([elsewhere], live=False))
        made = report(tmp_path, "it hangs, why?", job.pid)
    assert values(result, "stack.rank_odd_one_out") == values(found, "stack.rank_odd_one_out") == [2]
    assert other.outcome == "not_applicable" and values(result, "stack.odd_where") == ["user"]
    assert any("prepare_answer (job.py" in str(v) for v in values(result, "stack.frame"))
    groups = values(result, "stack.group")
    assert groups[0].startswith("2 ranks (0-1): collective: all_reduce") and "called from main (job.py" in groups[0]
    assert set(values(result, "stack.progress")) == {"still"}
    odd = next(e for e in result.evidence if e.key == "stack.rank_odd_one_out")
    assert odd.kind == "command" and odd.rank == 2 and "prepare_answer" in odd.text
    said = " ".join(s.text for s in made.summary)
    assert "Rank 2 stands elsewhere than the others" in said and "prepare_answer" in said, said
    assert made.status in ("insufficient_evidence", "hypothesis"), "where it stands is no cause"
    assert "rank 2" in made.next_steps[0] and "prepare_answer" in made.next_steps[0]


def test_the_workers_of_one_rank_hang(tmp_path: Path) -> None:
    with two_ranks("worker_sleeps", tmp_path) as job:
        result = look((job.pid,), tmp_path)
    assert values(result, "stack.rank_odd_one_out") == [1]
    assert values(result, "stack.odd_where") == ["dataloader"]
    assert str(values(result, "stack.workers_stuck")[0]).startswith("read_record (job.py")
    assert not values(result, "stack.forked_lock")


def test_a_lock_that_fork_left_locked(tmp_path: Path) -> None:
    skip_where_attaching_is_forbidden()
    with two_ranks("forked_lock", tmp_path) as job:
        result = look((job.pid,), tmp_path)
        made = report(tmp_path, "the job hangs, what is it waiting for?", job.pid)
    assert values(result, "stack.rank_odd_one_out") == [1]
    assert "__getitem__ (job.py" in str(values(result, "stack.forked_lock")[0])
    assert str(values(result, "stack.workers_stuck")[0]).endswith("__getitem__ (job.py:35)")
    # the kernel log of a shared machine does not speak of this job
    assert made.root_cause and made.root_cause.id == "data.loader_crash", made.differential[:3]
    assert any(e.key == "stack.forked_lock" and e.kind == "command" for e in made.evidence)


def test_a_lock_taken_twice_in_the_main_thread(tmp_path: Path) -> None:
    with two_ranks("lock", tmp_path) as job:
        result = look((job.pid,), tmp_path)
    assert values(result, "stack.odd_where") == ["lock"] and not values(result, "stack.forked_lock")


def test_a_stopped_worker_is_told_by_the_kernel(tmp_path: Path) -> None:
    with two_ranks("worker_stops", tmp_path) as job:
        result = look((job.pid,), tmp_path)
    assert "stopped" in values(result, "stack.process_state")
    assert values(result, "stack.rank_odd_one_out") == [1]


def test_a_process_that_moves_is_not_blamed(tmp_path: Path) -> None:
    code = (
        "import time\nprint('ready', flush=True)\n"
        "def first(n):\n    return sum(i * i for i in range(n))\n"
        "end = time.time() + 60\nn = 0\nwhile time.time() < end:\n    n += first(1000 + n % 7)\n"
    )
    (tmp_path / "busy.py").write_text(code)
    with started([sys.executable, "busy.py"], tmp_path) as job:
        wait_for(tmp_path / "job.log", "ready")
        results = [look((job.pid,), tmp_path) for _ in range(2)]
    assert all({"moving", "busy"} & set(values(r, "stack.progress")) for r in results)
    assert not any(values(r, "stack.rank_odd_one_out") for r in results)


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
        result = sample_stacks(Workspace([tmp_path], pids=(job.pid,), may_be_empty=True), seconds=1.0)
    assert result.outcome == "finding", result.summary
    data = values(result, "profile.data_fraction")
    assert data and data[0] > 0.5, result.text
    assert "train.py" in result.text, result.text


def test_no_permission_is_told_with_the_remedy(tmp_path: Path) -> None:
    """Without CAP_SYS_PTRACE a process with more rights than ours cannot be read."""
    drop = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"]
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root and setpriv")
    ask = (
        "import sys; from pathlib import Path; from traindoctor.agent.reading.run.workspace import Workspace;"
        "from traindoctor.agent.tools.time.stacks_tools import dump_stacks;"
        "r = dump_stacks(Workspace([Path(sys.argv[1])], pids=(int(sys.argv[2]),), may_be_empty=True));"
        "sys.stdout.write(r.outcome + ': ' + r.summary)"
    )
    with started([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60)"], tmp_path) as job:
        wait_for(tmp_path / "job.log", "ready")
        argv = [*drop, sys.executable, "-c", ask, str(tmp_path), str(job.pid)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("failed: no permission to attach"), done.stdout + done.stderr
    assert "SYS_PTRACE" in done.stdout or "ptrace_scope" in done.stdout


def test_dead_children_are_seen(tmp_path: Path) -> None:
    code = "import os, time\npid = os.fork()\nif pid == 0:\n    os._exit(3)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    with started([sys.executable, "-c", code], tmp_path) as job:
        wait_for(tmp_path / "job.log", "ready")
        result = look((job.pid,), tmp_path)
        seen = processes(Workspace([tmp_path], pids=(job.pid,), may_be_empty=True))
    assert "dead" in values(result, "stack.process_state")
    assert seen and [p.state for p in seen.children(job.pid)] == ["Z"]
