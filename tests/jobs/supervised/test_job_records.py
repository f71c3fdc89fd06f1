"""The record of a supervised job: what is read of it, what it decides, and what a damaged one does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.reading.logs.endings import endings
from traindoctor.agent.reading.logs.failures import failures
from traindoctor.agent.reading.logs.job_record import job_records
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.scan.logpass import logpass
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.tool import all_tools

STEPS = "".join(f"step {n}/100 loss {2 - n / 100:.4f}\n" for n in range(1, 101))
ENDED: dict[str, Any] = {
    "schema": "traindoctor.run/1", "command": ["python", "train.py"], "host": "n7", "rank": None, "attempt": 1,
    "began": "2026-11-22T18:00:00+00:00", "ended": "2026-11-22T18:05:00+00:00", "seconds": 300.0, "state": "ended",
    "pid": 100, "exit": {"code": 0, "signal": None}, "told_to_end": [], "died": [], "hang": None,
}  # fmt: skip


def run_of(folder: Path, log: str = STEPS, name: str = "record.json", attempt: int = 1, **changes: Any) -> Path:
    """The folder of a supervised run: one attempt more, with its log and record."""
    place = folder / "run" / "doctor-run" / f"try_{attempt}"
    place.mkdir(parents=True, exist_ok=True)
    (place / "console.log").write_text(log)
    (place / name).write_text(json.dumps(ENDED | {"attempt": attempt} | changes, indent=1))
    return folder / "run"


def told(run: Path) -> dict[str, Any]:
    result = all_tools()["job_record"](Workspace([run], live=False))
    return {e.key: e.value for e in result.evidence if e.kind != "absent"}


def verdict(run: Path) -> tuple[str, str]:
    *_, last = diagnose(Workspace([run], live=False), state=run.parent / "state", history=False)
    assert isinstance(last, ReportReady)
    report = last.report
    return report.root_cause.id, report.status


def killed(**memory: Any) -> dict[str, Any]:
    return {"exit": {"code": 137, "signal": "SIGKILL"}, "memory": memory}


KERNEL = """[47650.358398] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[47650.358459]  out_of_memory+0x214/0x500
[47650.358651] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,oom_memcg=/other,task_memcg=/other,task=python,pid=31310,uid=0
[47650.358671] Memory cgroup out of memory: Killed process 31310 (python) total-vm:321232kB, anon-rss:61056kB, file-rss:5964kB
"""


@pytest.mark.parametrize("died", [[], [{"pid": 108, "rank": 1, "name": "python", "at": "2026-11-22T18:04:59+00:00"}]])
def test_a_kill_of_another_job_of_the_machine_is_no_reason(tmp_path: Path, died: list[dict[str, Any]]) -> None:
    log = STEPS + "Traceback (most recent call last):\n  File \"train.py\", line 3\nKeyError: 'labels'\n"
    memory = {"peak_bytes": 100, "limit_bytes": 1000, "limit_of": "cgroup"}
    ended = {"exit": {"code": 1, "signal": None}, "died": died}
    run = run_of(tmp_path, log, memory={**memory, "oom_kills": 0}, **ended)
    (run / "doctor-run" / "try_1" / "dmesg.txt").write_text(KERNEL)
    assert verdict(run)[0] == "data.schema"
    run = run_of(tmp_path / "ours", STEPS, memory={**memory, "oom_kills": 1}, **ended)
    (run / "doctor-run" / "try_1" / "dmesg.txt").write_text(KERNEL)
    assert verdict(run)[0] == "memory.host_oom"


def test_a_job_that_ended_with_zero_is_sound(tmp_path: Path) -> None:
    run = run_of(tmp_path)
    assert told(run)["job.exit_ok"] is True and verdict(run) == ("none.healthy", "healthy")


def test_a_log_that_looks_finished_does_not_outweigh_an_exit_code(tmp_path: Path) -> None:
    run = run_of(tmp_path, STEPS + "training finished\n", exit={"code": 3, "signal": None})
    cause, status = verdict(run)
    assert (cause, status) == ("none.insufficient_evidence", "insufficient_evidence")
    ws = Workspace([run], live=False)
    assert endings(ws, logpass(ws), failures(ws)).state == "died"


@pytest.mark.parametrize(("memory", "cause"), [
    ({"peak_bytes": 10 << 30, "limit_bytes": 10 << 30, "limit_of": "cgroup", "oom_kills": 1}, "memory.host_oom"),
    ({"peak_bytes": 995, "limit_bytes": 1000, "limit_of": "cgroup"}, "memory.host_oom"),
    ({"peak_bytes": 100, "limit_bytes": 1000, "limit_of": "cgroup", "oom_kills": 0}, "none.insufficient_evidence"),
])  # fmt: skip
def test_a_kill_is_for_memory_only_where_memory_speaks(tmp_path: Path, memory: dict[str, Any], cause: str) -> None:
    found, status = verdict(run_of(tmp_path, **killed(**memory)))
    assert found == cause and (status == "confirmed") == bool(memory.get("oom_kills"))


@pytest.mark.parametrize(
    ("by", "kind"),
    [("slurmstepd (pid 9)", "scheduler"), ("timeout (pid 4)", "timeout"), ("bash (pid 4)", "process"), ("", "unknown")],
)
def test_who_told_the_job_to_end(tmp_path: Path, by: str, kind: str) -> None:
    end = {"signal": "SIGTERM", "at": "2026-11-22T18:04:00+00:00", "by": by}
    found = told(run_of(tmp_path, told_to_end=[end], exit={"code": 143, "signal": "SIGTERM"}))
    assert found["job.ended_by"] == kind and "job.broke_off" not in found


def test_a_job_that_left_in_good_order_when_asked_was_not_ended(tmp_path: Path) -> None:
    run = run_of(tmp_path, told_to_end=[{"signal": "SIGTERM", "at": "", "by": "slurmstepd (pid 9)"}])
    assert "job.ended_by" not in told(run) and verdict(run)[0] == "none.healthy"


def test_the_time_limit_of_a_command(tmp_path: Path) -> None:
    run = run_of(tmp_path, command=["timeout", "300", "python", "train.py"], exit={"code": 124, "signal": None})
    assert verdict(run)[0] == "env.watchdog_kill"


def test_the_last_attempt_decides(tmp_path: Path) -> None:
    run_of(tmp_path, STEPS[:400], exit={"code": 139, "signal": "SIGSEGV"})
    run = run_of(tmp_path, attempt=2)
    found = told(run)
    assert "job.failed" not in found
    assert "attempt 1: the job ended" in all_tools()["job_record"](Workspace([run], live=False)).text
    assert verdict(run)[0] == "none.healthy"


def test_of_ranks_with_a_record_each_the_one_that_failed_is_told_first(tmp_path: Path) -> None:
    for rank in range(3):
        bad = {"exit": {"code": 139, "signal": "SIGSEGV"}} if rank == 2 else {}
        run = run_of(tmp_path, name=f"rank_{rank}.json", rank=rank, **bad)
    result = all_tools()["job_record"](Workspace([run], live=False))
    assert "1 of 3 ranks failed" in result.summary
    assert next(e for e in result.evidence if e.key == "job.signal").rank == 2
    assert "job.exit_ok" not in {e.key for e in result.evidence}


def test_a_hang_that_was_overcome_is_no_hang(tmp_path: Path) -> None:
    hang = {"at": "", "last_step": 40, "quiet_seconds": 61.0, "limit_seconds": 60.0, "stacks": [], "went_on": True}
    run = run_of(tmp_path, hang=hang)
    assert "job.hang_seconds" not in told(run)
    said = "no progress for 61 s after step 40, limit 60 s; it went on later"
    assert said in all_tools()["job_record"](Workspace([run], live=False)).text


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", '{"schema": "traindoctor.run/1"', '{"schema": "traindoctor.run/2"}',
        '{"schema": "traindoctor.run/1", "exit": [], "died": {"a": 1}, "memory": 4, "hang": "yes", "command": {}}',
        '{"schema": "traindoctor.run/1", "exit": {"code": "0"}, "told_to_end": [1, null, {"signal": "\\u001b[2J"}]}',
        '{"schema": "traindoctor.run/1", "seconds": 1e999, "memory": {"peak_bytes": -1, "limit_bytes": true}}',
        '{"schema": "traindoctor.run/1", "hang": {"stacks": ["../../etc/passwd"]}, "x": ' + "[" * 5000,
    ],
)  # fmt: skip
def test_a_damaged_record_claims_nothing(tmp_path: Path, text: str) -> None:
    run = run_of(tmp_path)
    (run / "doctor-run" / "try_1" / "record.json").write_text(text)
    ws = Workspace([run], live=False)
    records = job_records(ws)
    assert not any(r.over or r.failed or r.hung or r.hang_stacks for r in records)
    found = {e.key for e in all_tools()["job_record"](ws).evidence}
    assert not found & {"job.failed", "job.exit_ok", "job.exit_code", "job.ended_by"}


def test_a_record_and_what_the_kernel_said_before_are_no_log(tmp_path: Path) -> None:
    run = run_of(tmp_path, command=["python", "train.py", "--note", "CUDA out of memory"])
    place = run / "doctor-run" / "try_1"
    (place / "start").mkdir()
    (place / "start" / "dmesg.txt").write_text("[  12.000000] Out of memory: Killed process 77 (python) total-vm:1kB\n")
    roles = {f.name.rpartition("/")[2]: f.role for f in Workspace([run], live=False).files}
    assert roles == {"record.json": "record", "console.log": "log", "dmesg.txt": "record"}
    assert verdict(run)[0] == "none.healthy"


def test_the_log_of_a_rank_and_the_console_tell_one_failure(tmp_path: Path) -> None:
    trace = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    f()\nKeyError: 'label'\n"
    own = "".join(f"[rank1]:{line}\n" for line in trace.splitlines())
    run = run_of(tmp_path, STEPS + own, exit={"code": 1, "signal": None})
    inner = run / "doctor-run" / "try_1" / "ranks" / "none_x1" / "attempt_0" / "1"
    inner.mkdir(parents=True)
    (inner / "stderr.log").write_text(trace)
    ws = Workspace([run], live=False)
    assert len(failures(ws).groups) == 1 and {u.rank for u in failures(ws).units} == {1}


@pytest.mark.parametrize(("command", "one"), [
    (["torchrun", "--standalone", "--nproc-per-node=2", "train.py"], True),
    (["torchrun", "--nproc-per-node=2", "train.py"], True),
    (["python", "-m", "torch.distributed.run", "--nnodes", "1:1", "train.py"], True),
    (["torchrun", "--nnodes=2", "--nproc-per-node=2", "train.py"], False),
    (["torchrun", "--nnodes=1:4", "train.py"], False),
    (["srun", "python", "train.py"], False),
])  # fmt: skip
def test_whether_all_ranks_ran_on_one_machine(tmp_path: Path, command: list[str], one: bool) -> None:
    assert told(run_of(tmp_path, command=command)).get("job.one_machine", False) is one


@pytest.mark.parametrize(("command", "here"), [
    (["python", "train.py"], True),
    (["torchrun", "--standalone", "--nproc-per-node=2", "train.py"], True),
    (["accelerate", "launch", "--num_machines", "1", "train.py"], True),
    (["deepspeed", "--include", "localhost:0,1", "train.py"], True),
    (["deepspeed", "--hostfile", "hosts", "train.py"], False),
    (["mpirun", "-np", "16", "python", "train.py"], False),
    (["srun", "python", "train.py"], False),
    (["torchrun", "--nnodes=2", "train.py"], False),
])  # fmt: skip
def test_no_counted_kill_refutes_memory_only_where_all_processes_were_counted(tmp_path, command, here):
    memory = {"peak_bytes": 100, "limit_bytes": 1000, "limit_of": "cgroup", "oom_kills": 0}
    found = told(run_of(tmp_path, command=command, **killed(**memory)))
    assert found.get("job.kill_not_for_memory", False) is here


def test_who_is_told_to_be_gone_first(tmp_path: Path) -> None:
    died = [
        {"pid": 5, "rank": 0, "name": "worker", "at": "2026-11-22T18:04:00+00:00", "signal": None, "worker": True},
        {"pid": 6, "rank": 0, "name": "python", "at": "2026-11-22T18:04:01+00:00", "signal": None, "code": 0},
        {"pid": 9, "rank": 2, "name": "python", "at": "2026-11-22T18:04:09+00:00", "signal": "SIGTERM"},
        {"pid": 7, "rank": 1, "name": "python", "at": "2026-11-22T18:04:03+00:00", "signal": "SIGSEGV"},
        {"pid": 8, "rank": 3, "name": "python", "at": "2026-11-22T18:04:05+00:00", "signal": None, "code": 1},
    ]
    run = run_of(tmp_path, died=died, exit={"code": 1, "signal": None})
    found = told(run)
    assert found["job.died_first"] == "rank 1" and found["job.died_signal"] == "SIGSEGV"
    result = all_tools()["job_record"](Workspace([run], live=False))
    first = next(e for e in result.evidence if e.key == "job.died_first")
    assert (first.rank, first.time) == (1, "2026-11-22T18:04:03+00:00")


def test_of_earlier_attempts_the_order_is_kept(tmp_path: Path) -> None:
    for attempt, code in ((1, 3), (2, 4), (10, 5)):
        run = run_of(tmp_path, attempt=attempt, exit={"code": code, "signal": None})
    result = all_tools()["job_record"](Workspace([run], live=False))
    assert re.findall(r"attempt (\d+): the job ended", result.text) == ["1", "2"]
    assert told(run)["job.exit_code"] == 5


def test_a_hang_outranks_the_signal_that_ended_it(tmp_path: Path) -> None:
    hang = {"at": "", "last_step": 40, "quiet_seconds": 61.0, "limit_seconds": 60.0, "stacks": [], "went_on": False}
    log = STEPS + "torch.distributed.elastic.multiprocessing.api.SignalException: Process 2210 got signal: 15\n"
    end = {"signal": "SIGTERM", "at": "2026-11-22T18:04:00+00:00", "by": "doctor run"}
    run = run_of(tmp_path, log, hang=hang, told_to_end=[end], exit={"code": 143, "signal": "SIGTERM"})
    assert verdict(run)[0] != "env.watchdog_kill"


HEAD = "JobID|JobName|User|State|ExitCode|Elapsed|Timelimit|MaxRSS|ReqMem|NodeList|Start|End\n"


@pytest.mark.parametrize(("state", "code", "cause"), [
    ("TIMEOUT", "0:0", "env.watchdog_kill"),
    ("PREEMPTED", "0:15", "dist.node_failure"),
    ("NODE_FAIL", "1:0", "dist.node_failure"),
    ("OUT_OF_MEMORY", "0:125", "memory.host_oom"),
    ("CANCELLED by 1000", "0:15", "none.insufficient_evidence"),
    ("FAILED", "3:0", "none.insufficient_evidence"),
])  # fmt: skip
def test_the_state_of_a_scheduled_job_decides_alone(tmp_path: Path, state: str, code: str, cause: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "slurm-4711.out").write_text(STEPS[:800])
    row = f"4711|train|kim|{state}|{code}|00:30:00|01:00:00||64G|n7|2026-11-22T01:00:00|2026-11-22T01:30:00\n"
    (run / "sacct.txt").write_text(HEAD + row)
    *_, last = diagnose(Workspace([run], live=False), state=tmp_path / "state", history=False)
    assert isinstance(last, ReportReady) and last.report.root_cause.id == cause
    if cause.startswith("none."):  # what Slurm says is told, and nobody blamed
        assert any(e.key in ("slurm.cancelled_by", "slurm.failed") for e in last.report.evidence)
