"""Ends that take minutes on a cluster, from what a real one (Slurm 22.05) said of them, and daemons that do not answer.

The programs on the search path print the recorded answers; everything else is the real thing.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.jobs.nodes.slurm_nodes import SlurmShell

Doctor = Callable[..., subprocess.CompletedProcess[str]]

HEAD = "JobID|JobIDRaw|JobName|User|State|ExitCode|DerivedExitCode|Elapsed|Timelimit|MaxRSS|ReqMem|NodeList|Reason|"
HEAD += "Start|End|WorkDir|SubmitLine"
LIMIT = """2|2|limit|nobody|TIMEOUT|0:0|0:0|00:01:18|00:01:00||200M|n2|None|2026-11-22T19:28:27|2026-11-22T19:29:45|{w}|sbatch long.sh
2.batch|2.batch|batch||CANCELLED|0:15||00:01:18||4928K||n2||2026-11-22T19:28:27|2026-11-22T19:29:45||"""
LOST = """20|20|wide|nobody|NODE_FAIL|0:0|0:0|00:00:46|UNLIMITED||600M|n[1-3]|None|2026-11-22T19:33:56|2026-11-22T19:34:42|{w}|sbatch -N3 wide.sh
20.batch|20.batch|batch||CANCELLED|0:15||00:00:46||12120K||n1||2026-11-22T19:33:56|2026-11-22T19:34:42||
20.0|20.0|bash||CANCELLED|0:15||00:00:46||5016K||n[1-3]||2026-11-22T19:33:56|2026-11-22T19:34:42||srun bash"""
LOST_LOG = """srun: error: Node failure on n3
slurmstepd-n1: error: *** JOB 20 ON n1 CANCELLED AT 2026-11-22T19:34:42 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***
srun: error: n2: task 1: Terminated"""
TAKEN = """11|11|again|nobody|PREEMPTED|0:0|0:0|00:00:20|UNLIMITED||200M|n1|None|2026-11-22T19:29:06|2026-11-22T19:29:26|{w}|sbatch -p again long.sh
11.batch|11.batch|batch||CANCELLED|0:15||00:00:20||4888K||n1||2026-11-22T19:29:06|2026-11-22T19:29:26||"""
WAITS = """JobId=11 JobName=again
   UserId=nobody(65534) GroupId=root(0) MCS_label=N/A
   JobState=PENDING Reason=BeginTime Dependency=(null)
   Requeue=1 Restarts=1 BatchFlag=1 Reboot=0 ExitCode=0:0
   StartTime=2026-11-22T19:31:27 EndTime=Unknown Deadline=N/A"""
TWICE = """21|21|req|nobody|REQUEUED|0:0|0:0|00:00:00|Partition_Limit||200M|n2|None|2026-11-22T19:33:56|2026-11-22T19:33:56|{w}|sbatch again.sh
21.batch|21.batch|batch||CANCELLED|0:15||00:00:01||||n2||2026-11-22T19:33:56|2026-11-22T19:33:57||
21|21|req|nobody|COMPLETED|0:0|0:0|00:00:00|UNLIMITED||200M|n2|BeginTime|2026-11-22T19:35:58|2026-11-22T19:35:58|{w}|sbatch again.sh
21.batch|21.batch|batch||COMPLETED|0:0||00:00:00||||n2||2026-11-22T19:35:58|2026-11-22T19:35:58||"""
STOPPED = """12|12|gone|nobody|CANCELLED by 0|0:0|0:0|00:00:22|UNLIMITED||300M|n2|None|2026-11-22T19:29:06|2026-11-22T19:29:28|{w}|sbatch long.sh"""
HET = """228+0|228|het|nobody|FAILED|1:0|1:0|00:00:03|UNLIMITED||100M|n1|None|2026-11-22T19:43:06|2026-11-22T19:43:09|{w}|sbatch h.sh
228+1|229|het|nobody|FAILED|1:0|1:0|00:00:03|UNLIMITED||100M|n2|None|2026-11-22T19:43:06|2026-11-22T19:43:09|{w}|sbatch h.sh"""
STEPS = "".join(f"step {n} loss {2 - n / 100:.3f}\n" for n in range(90))
TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    import flash_attn_x\n'
TRACE += "ModuleNotFoundError: No module named 'flash_attn_x'\n"


def slurm_that_says(folder: Path, monkeypatch: pytest.MonkeyPatch, accounts: str, controller: str = "") -> None:
    programs = folder / "bin"
    programs.mkdir()
    (folder / "accounts").write_text(f"{HEAD}\n{accounts.format(w=folder)}\n")
    (folder / "controller").write_text(controller)
    job = f'if [[ $2 == job && -s "{folder}/controller" ]]; then cat "{folder}/controller"; exit 0; fi\n'
    job += 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1\n'
    for name, body in (("sacct", f'[[ $1 == -B ]] && exit 1\ncat "{folder}/accounts"\n'), ("scontrol", job)):
        (programs / name).write_text(f"#!/bin/bash\n{body}")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("job", "accounts", "controller", "log", "causes", "key", "said"),
    [
        ("2", LIMIT, "", STEPS, ["env.watchdog_kill"], "slurm.time_limit", ""),
        ("20", LOST, "", STEPS + LOST_LOG, ["dist.node_failure"], "slurm.node_fail", ""),
        ("11", TAKEN, WAITS, STEPS, ["dist.node_failure"], "slurm.preempted", "put back into the queue"),
        ("21", TWICE, "", STEPS + "training finished\n", ["none.healthy"], "slurm.requeued", ""),
        ("12", STOPPED, "", STEPS, ["none.healthy", "none.insufficient_evidence"], "slurm.cancelled_by", ""),
        ("228", HET, "", TRACE, ["env.missing_module"], "slurm.failed", ""),
    ],
    ids=["limit", "node", "preempted", "requeued", "cancelled", "heterogeneous"],
)
def test_each_end_has_its_cause(job, accounts, controller, log, causes, key, said, doctor, tmp_path, monkeypatch):
    slurm_that_says(tmp_path, monkeypatch, accounts, controller)
    (tmp_path / f"slurm-{job}.out").write_text(log)
    done = doctor("triage", "--slurm", job, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["root_cause"]["id"] in causes and key in {e["key"] for e in report["evidence"]}
    assert said in done.stderr


def test_a_daemon_that_does_not_answer_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("scontrol", "squeue", "sacct"):
        (tmp_path / name).write_text(
            f"#!/bin/bash\necho {name} >>'{tmp_path}/asked'\n[[ {name} == sacct ]] || sleep 60\n"
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    shell = SlurmShell()
    answers = [shell.run([name, "x"], 1.0) for name in ("scontrol", "squeue", "scontrol")]
    assert [a.code for a in answers] == [None, None, None]
    assert all("no answer within 1 s" in a.stderr for a in answers)
    assert (tmp_path / "asked").read_text().split() in (["scontrol"], [])
    assert shell.run(["sacct"], 60.0).code == 0  # the accounting is another daemon
