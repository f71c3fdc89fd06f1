"""Live dumps with a shell of recorded answers: what is missing, refused, half there or recorded; nothing raised."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from traindoctor.agent.core.shell import Completed
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.machine.job_processes import processes
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.time.stacks_tools import dump_stacks

WAITS = """Process {pid}: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    main (train.py:74)
    <module> (train.py:79)
"""
SLEEPS = WAITS.replace("    all_reduce (torch/distributed/distributed_c10d.py:3252)\n", "").replace("main (train.py:74)", "prepare (train.py:9)")


class Answers:
    """A shell: a process table, and an answer of py-spy for each pid."""

    def __init__(self, rows: list[dict] | None, dumps: dict[int, str | Completed]) -> None:
        self.rows, self.dumps = rows, dumps
        self.asked: list[list[str]] = []

    def run(self, argv, timeout=10.0, env=None, cwd=None) -> Completed:
        self.asked.append(argv)
        if argv[0] == sys.executable:
            return Completed(tuple(argv), 0 if self.rows is not None else None, "".join(json.dumps(r) + "\n" for r in self.rows or []))
        if argv[0] == "cat":
            return Completed(tuple(argv), 0, "1\n")
        answer = self.dumps.get(int(argv[-1]), Completed(tuple(argv), 1, "", "Error: No such process"))
        return answer if isinstance(answer, Completed) else Completed(tuple(argv), 0, answer)


def row(pid: int, rank: int | None = None, **more: object) -> dict:
    """A row of the process table."""
    variables = {"RANK": str(rank), "WORLD_SIZE": "3"} if rank is not None else {}
    return {
        "pid": pid, "parent": 1, "uid": 0, "name": "python3", "state": "S", "command": "python train.py",
        "variables": variables, **more,
    }  # fmt: skip


def ask(tmp_path: Path, answers: Answers, pids: tuple[int, ...] = (), **args: object) -> ToolResult:
    """The tool's answer over these recorded answers."""
    ws = Workspace([tmp_path], shell=answers, pids=pids, live=True, may_be_empty=True)
    return dump_stacks(ws, **{"seconds": 0.0, **args})


def values(result: ToolResult, key: str) -> list:
    """Values of a key."""
    return [e.value for e in result.evidence if e.key == key]


def test_the_odd_rank_of_a_found_job(tmp_path: Path) -> None:
    dumps = {p: WAITS.format(pid=p) for p in (10, 11)} | {12: SLEEPS.format(pid=12)}
    result = ask(tmp_path, Answers([row(10, 0), row(11, 1), row(12, 2)], dumps))
    assert values(result, "stack.rank_odd_one_out") == [2] and values(result, "stack.odd_where") == ["user"]
    assert all("--nonblocking" in e.argv for e in result.evidence if e.argv and e.argv[0] == "py-spy")


def test_py_spy_is_not_installed(tmp_path: Path) -> None:
    absent = Completed(("py-spy",), None, "", "py-spy: not installed")
    result = ask(tmp_path, Answers([row(10, 0)], {10: absent}))
    assert result.outcome == "failed" and "pip install py-spy" in result.summary


def test_no_permission(tmp_path: Path) -> None:
    refused = Completed(("py-spy",), 1, "", "Error: Permission denied (os error 13)")
    result = ask(tmp_path, Answers([row(10, 0)], {10: refused}))
    assert result.outcome == "failed" and "ptrace_scope is 1" in result.summary and "sudo" in result.summary


def test_one_of_three_cannot_be_read(tmp_path: Path) -> None:
    dumps: dict = {10: WAITS.format(pid=10), 11: WAITS.format(pid=11)}
    result = ask(tmp_path, Answers([row(10, 0), row(11, 1), row(12, 2)], dumps))
    assert result.outcome == "finding" and "1 could not be read" in result.summary


def test_a_dump_that_never_ends(tmp_path: Path) -> None:
    late = Completed(("py-spy",), None, "", "py-spy: no answer within 20 s")
    result = ask(tmp_path, Answers([row(10, 0, state="D", wchan="nfs_wait_bit_killable")], {10: late}))
    assert result.outcome == "failed" and "no answer within" in result.summary
    assert values(result, "stack.process_state") == ["uninterruptible"] and "nfs_wait" in result.evidence[0].text


def test_nobody_and_no_table(tmp_path: Path) -> None:
    assert ask(tmp_path, Answers([], {})).outcome == "not_applicable"
    assert ask(tmp_path, Answers(None, {})).outcome == "failed"
    named = ask(tmp_path, Answers([], {}), pids=(77,))
    assert named.outcome == "not_applicable" and "77" in named.summary


def test_ranks_of_another_job_are_not_taken(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    other = row(10, 0, folder="/somewhere/else")
    result = ask(tmp_path, Answers([other], {10: SLEEPS.format(pid=10)}))
    assert result.outcome == "not_applicable" and "--pid" in result.summary
    mine = row(10, 0, folder=str(tmp_path))
    assert ask(tmp_path, Answers([mine], {10: SLEEPS.format(pid=10)})).outcome == "finding"


def test_a_launcher_stands_for_its_ranks(tmp_path: Path) -> None:
    rows = [row(9, None, command="python torchrun train.py", name="pt_elastic"), row(10, 0, parent=9), row(11, 1, parent=9)]
    answers = Answers([*rows, row(20, 0)], {10: WAITS.format(pid=10), 11: SLEEPS.format(pid=11)})
    result = ask(tmp_path, answers, pids=(9,))
    assert values(result, "stack.rank_odd_one_out") == [1]
    assert not any(a[-1] == "20" for a in answers.asked)


def test_not_on_a_machine_that_is_not_the_runs(tmp_path: Path) -> None:
    answers = Answers([row(10, 0)], {10: WAITS.format(pid=10)})
    ws = Workspace([tmp_path], shell=answers, live=False, may_be_empty=True)
    assert dump_stacks(ws).outcome == "not_applicable" and not answers.asked


def test_a_table_of_odd_rows(tmp_path: Path) -> None:
    for rows in ([{"pid": 1}], ["x"], [{"pid": "a", "bogus": 1}], [{}]):
        assert ask(tmp_path, Answers(rows, {})).outcome in ("failed", "not_applicable")  # pyright: ignore[reportArgumentType]


def test_only_named_variables_leave_the_process_table(tmp_path: Path) -> None:
    import os
    import subprocess

    env = {**os.environ, "RANK": "5", "MY_API_KEY": "sk-secret-secret"}
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"], env=env)
    try:
        seen = processes(Workspace([tmp_path], pids=(job.pid,), may_be_empty=True))
    finally:
        job.kill()
        job.wait(10)
    assert seen and seen.by_pid[job.pid].rank == 5
    assert "sk-secret-secret" not in seen.done.stdout
