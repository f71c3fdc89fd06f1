"""A kernel's log is that of the whole machine: a kill in it is the run's own only where something of the run shows it."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

KERNEL = """\
[Mon Nov 23 08:10:39 2026] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[Mon Nov 23 08:10:39 2026]  oom_kill_process.cold+0x8/0x8a
[Mon Nov 23 08:10:39 2026]  out_of_memory+0x214/0x500
[Mon Nov 23 08:10:39 2026] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,\
oom_memcg=/slurm/uid_1001/job_77,task_memcg=/slurm/uid_1001/job_77,task=python3,pid=10876,uid=1001
[Mon Nov 23 08:10:39 2026] Memory cgroup out of memory: Killed process 10876 (python3) total-vm:221356kB, \
anon-rss:30336kB, file-rss:5308kB, shmem-rss:0kB, UID:1001 pgtables:124kB oom_score_adj:0
"""
STEPS = "".join(f"step {i} loss {2.0 - i / 10:.3f}\n" for i in range(4))
TRACE = 'Traceback (most recent call last):\n  File "train.py", line {line}, in <module>\n    {code}\n{error}\n'
ENDS = {
    "env.missing_module": TRACE.format(
        line=7, code="import flash_attn", error="ModuleNotFoundError: No module named 'flash_attn'"
    ),
    "data.schema": TRACE.format(line=31, code='ids = row["input_ids"]', error="KeyError: 'input_ids'"),
}
KILLED = {
    "launcher": "torch.distributed.elastic.multiprocessing.api: failed (exitcode: -9) local_rank: 1 (pid: 10876)\n",
    "loader": TRACE.format(
        line=40,
        code="for batch in loader:",
        error="RuntimeError: DataLoader worker (pid 10876) is killed by signal: Killed.",
    ),
    "shell": "run.sh: line 12: 10876 Killed                  python3 train.py\n",
}


def cause(folder: Path, end: str) -> str | None:
    for node, text in (("n1", STEPS), ("n2", STEPS + end)):
        (folder / node).mkdir(parents=True)
        (folder / node / "dmesg.txt").write_text(KERNEL)
        (folder / node / f"rank_{node[1:]}.log").write_text(f"[rank{node[1:]}] host {node}\n{text}")
    *_, last = diagnose(Workspace([folder], live=False), "why did it stop?", state=folder.parent / "state")
    assert isinstance(last, ReportReady)
    return last.report.root_cause.id


@pytest.mark.parametrize("expected", ENDS)
def test_a_kill_that_nothing_of_the_run_shows_is_not_why_it_raised_an_error_of_its_own(
    expected: str, tmp_path: Path
) -> None:
    assert cause(tmp_path / "run", ENDS[expected]) == expected


@pytest.mark.parametrize("how", KILLED)
def test_a_kill_that_the_run_tells_of_too_is_its_own(how: str, tmp_path: Path) -> None:
    assert cause(tmp_path / "run", KILLED[how]) == "memory.host_oom"


def test_a_run_that_ends_in_mid_air_may_have_been_killed(tmp_path: Path) -> None:
    assert cause(tmp_path / "run", "") == "memory.host_oom"
