"""Real processes started with probing: their stack, timings, rows; refusals; a process that was not started for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.stacks.probing import refusal, table
from traindoctor.agent.tools.time.stacks_tools import live_eval, live_query

PROBING = Path(sys.executable).parent / "probing"
here = pytest.mark.skipif(not PROBING.exists(), reason="probing is not installed")

JOB = """
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
SECRET = 41

def wait_a_moment():
    time.sleep(0.05)

for step in range(10000):
    model(torch.randn(8, 64)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 30:
        print("ready", flush=True)
    wait_a_moment()
"""


def start(folder: Path, **env: str) -> subprocess.Popen[bytes]:
    """The job in a process of its own, once it has stepped."""
    (folder / "job.py").write_text(JOB)
    with (folder / "job.log").open("wb") as log:
        job = subprocess.Popen(
            [sys.executable, "job.py"], cwd=folder, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1", **env}
        )
    until = time.monotonic() + 90
    while "ready" not in (folder / "job.log").read_text():
        assert time.monotonic() < until and job.poll() is None, (folder / "job.log").read_text()[-2000:]
        time.sleep(0.2)
    return job


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Pid and folder of a process with probing."""
    folder = tmp_path_factory.mktemp("probed")
    running = start(folder, PROBING="1", PROBING_TORCH_PROFILING="on", MY_TOKEN="sk-very-secret-value")
    yield running.pid, folder
    running.send_signal(signal.SIGKILL)
    running.wait(10)


def ask(pid: int, folder: Path, **args: object) -> ToolResult:
    """The tool's answer about one process."""
    return live_query(Workspace([folder], pids=(pid,), may_be_empty=True), **args)


def values(result: ToolResult, key: str) -> list:
    """Values of a key, in order."""
    return [e.value for e in result.evidence if e.key == key]


@here
def test_an_overview(job: tuple[int, Path]) -> None:
    result = ask(*job)
    assert result.outcome == "finding", result.summary
    assert "slowest module" in result.summary and re.search(r"step [1-9]\d*: \d+ bytes allocated", result.text)
    assert any("job.py" in str(v) for v in values(result, "stack.frame")), result.evidence
    assert not any("sk-very-secret-value" in e.text + str(e.value) for e in result.evidence)
    assert all(live_query.allows(e.key) for e in result.evidence)


@here
def test_a_query(job: tuple[int, Path]) -> None:
    result = ask(*job, sql="select stage, count(*) as n from python.torch_trace group by stage")
    assert any("stage=post forward" in str(v) for v in values(result, "live.row")), result.text


@here
def test_a_wrong_column_is_told(job: tuple[int, Path]) -> None:
    result = ask(*job, sql="select nope from python.torch_trace")
    assert result.outcome == "failed" and "No field named nope" in result.summary


@here
def test_an_expression_only_through_the_costly_tool(job: tuple[int, Path]) -> None:
    pid, folder = job
    result = live_eval(Workspace([folder], pids=(pid,), may_be_empty=True), expression="__import__('__main__').SECRET + 1")
    assert result.outcome == "finding" and result.evidence[0].value == "42"
    broken = live_eval(Workspace([folder], pids=(pid,), may_be_empty=True), expression="1 / 0")
    assert broken.outcome == "failed"
    with pytest.raises(ToolError):
        live_eval(Workspace([folder], pids=(pid,), may_be_empty=True))


@here
def test_a_process_that_was_not_started_for_it(tmp_path: Path) -> None:
    plain = start(tmp_path)
    try:
        result = ask(plain.pid, tmp_path)
    finally:
        plain.kill()
        plain.wait(10)
    assert result.outcome == "not_applicable" and "PROBING=1 PROBING_TORCH_PROFILING=on torchrun" in result.summary


def test_the_environment_is_never_asked_for(tmp_path: Path) -> None:
    for sql in (
        "select value from process.envs", "select * from PROCESS.ENVS", "drop table x", "set probing.x=1",
        "select 1; select 2", "copy python.torch_trace to '/tmp/x'", "select * from '/etc/passwd'", "explain select 1",
    ):  # fmt: skip
        assert refusal(sql), sql
        result = live_query(Workspace([tmp_path], pids=(1,), may_be_empty=True), sql=sql)
        assert result.outcome == "failed" and "not sent" in result.summary
    assert not refusal("select module from python.torch_trace")


def test_not_asked_about_this_machine(tmp_path: Path) -> None:
    assert live_query(Workspace([tmp_path], live=False, may_be_empty=True)).outcome == "not_applicable"


def test_a_wrapped_table() -> None:
    text = (
        "┌─────┬──────────┬─────┐\n│ x   │ long_nam │ z   │\n│     │ e        │     │\n├─────┼──────────┼─────┤\n"
        "│ a   │ some ver │ 1.5 │\n│     │ y long   │     │\n│ b   │ short    │ 2   │\n└─────┴──────────┴─────┘\n"
    )
    assert table(text) == [{"x": "a", "long_name": "some very long", "z": "1.5"}, {"x": "b", "long_name": "short", "z": "2"}]


@given(st.lists(st.sampled_from(["┌──┬──┐", "│ a │ b │", "├──┼──┤", "│   │ c │", "└──┴──┘", "│ a │", "x"]), max_size=20))
@example(["┌──┬──┐", "│ a │ b │", "├──┼──┤", "│ a │ b │", "┌──┬──┐", "│ a │"])
def test_any_mixture_of_lines(lines: list[str]) -> None:
    for row in table("\n".join(lines)):
        assert isinstance(row, dict)
