"""The epilog's second part, where Slurm's answers are programs of our own: whose turn it is, and how many at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.jobs.slurm.cluster import until

Doctor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def node(doctor: Doctor) -> Iterator[Path]:
    """A folder that every user may read: the hook, `scontrol` and `sinfo` that say what files say, and a doctor."""
    with tempfile.TemporaryDirectory(prefix="doctor-epilog-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        programs = {
            "scontrol": 'case "$*" in *hostnames*) printf "n1\\nn2\\nn3\\nn4\\n" ;; '
            '*) echo "JobId=1 JobState=$(cat "$0.state") Reason=None" ;; esac',
            "sacct": 'cat "$0.state" 2>/dev/null',
            "sinfo": 'printf "n1 down*\\nn2 idle\\nn3 idle\\nn4 idle\\n"',
            "doctor": 'd=${0%/*}; mkdir "$d/in.$$"; ls -d "$d"/in.* | wc -l >>"$d/together"; '
            "for _ in {1..600}; do [[ -e $d/go ]] && break; sleep 0.1; done; "
            'rmdir "$d/in.$$"; echo "$HOME $*" >>"$d/calls"',
        }
        for program, body in programs.items():
            (folder / program).write_text(f"#!/bin/bash\n{body}\n")
            (folder / program).chmod(0o755)
        for file in ("together", "calls", "go"):
            (folder / file).touch()
            (folder / file).chmod(0o666)
        done = doctor("hook", "slurm", "-o", folder / "hook", "--doctor", folder / "doctor", "--logs", folder / "logs")
        assert done.returncode == 0
        yield folder


def ended(node: Path, state: str, job: int = 1, **more: str) -> subprocess.Popen[bytes]:
    """Start the second part for a job of `nobody` (of us, where we are not root) that ended in this state."""
    return started(node, state, ("--work",), job, **more)


def started(
    node: Path, state: str, words: tuple[str, ...], job: int = 1, start_new_session: bool = False, **more: str
) -> subprocess.Popen[bytes]:
    """Start the hook as slurmd does after such a job."""
    (node / "scontrol.state").write_text(state)
    user = "nobody" if os.geteuid() == 0 else subprocess.check_output(["id", "-nu"], text=True).strip()
    env = {"PATH": f"{node}:/usr/bin:/bin:/usr/sbin:/sbin", "SLURM_JOB_ID": str(job), "SLURM_JOB_USER": user,
           "SLURM_NODELIST": "n[1-4]", "SLURMD_NODENAME": "n1", "SLURM_JOB_EXIT_CODE2": "0:0", "TMPDIR": str(node)}  # fmt: skip
    argv = ["bash", str(node / "hook"), *words]
    return subprocess.Popen(argv, env=env | more, cwd="/", start_new_session=start_new_session)


def test_the_second_part_outlives_the_group_that_slurmd_kills_also_where_it_is_slow_to_begin(node: Path) -> None:
    """slurmd ends an epilog's process group with the script: what has no session of its own by then is lost."""
    (node / "setsid").write_text('#!/bin/bash\nshift\n(sleep 1; exec /usr/bin/setsid "$@") &\n')
    (node / "setsid").chmod(0o755)
    (node / "systemd-run").write_text("#!/bin/bash\nexit 1\n")
    (node / "systemd-run").chmod(0o755)
    child = started(node, "FAILED", (), start_new_session=True)
    assert child.wait(60) == 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    until(lambda: len(calls(node)) == 1, 60, "the second part was lost")


def calls(node: Path) -> list[str]:
    return (node / "calls").read_text().splitlines()


def test_what_ended_badly_is_diagnosed_once_on_one_node_whatever_its_exit_code(node: Path) -> None:
    for state in ("COMPLETED", "CANCELLED", "PENDING"):
        assert ended(node, state).wait(60) == 0
    for other in ("n2", "n4"):
        assert ended(node, "TIMEOUT", SLURMD_NODENAME=other).wait(60) == 0
    assert calls(node) == [] and not (node / "logs").exists()
    for job, state in enumerate(("TIMEOUT", "PREEMPTED", "FAILED", "OUT_OF_MEMORY"), 1):
        assert ended(node, state, job).wait(60) == 0
    assert ended(node, "NODE_FAIL", 5, SLURMD_NODENAME="n2").wait(60) == 0  # n1 was lost
    assert ended(node, "NODE_FAIL", 5, SLURMD_NODENAME="n3").wait(60) == 0
    found = [line.split(" triage ")[1] for line in calls(node)]
    assert found == [f"--slurm {job} --write --offline --plain" for job in (1, 2, 3, 4, 5)]
    assert not list(node.glob("doctor-home-*"))  # a home of ours is taken away again
    log = node / "logs" / "job-1.log"
    assert "ended TIMEOUT" in log.read_text() and log.stat().st_mode & 0o077 == 0


def test_a_job_that_slurm_cannot_finish_in_time_ended_as_the_accounting_says(node: Path) -> None:
    text = (node / "hook").read_text()
    (node / "hook").write_text(text.replace("ends=$((SECONDS + 60))", "ends=$((SECONDS + 1))"))
    said = node / "sacct.state"
    for job, (state, diagnosed) in enumerate(
        {"": False, "RUNNING": False, "COMPLETED": False, "CANCELLED by 1000": False, "PREEMPTED": True}.items(), 1
    ):
        said.write_text(f"{state}\n")
        assert ended(node, "COMPLETING", job).wait(60) == 0
        assert len(calls(node)) == diagnosed, state
    said.unlink()  # no accounting: what failed by its own exit code
    assert ended(node, "COMPLETING", 6, SLURM_JOB_EXIT_CODE2="1:0").wait(60) == 0 and len(calls(node)) == 2


def test_many_that_end_at_once_take_turns_and_those_beyond_are_left_out_with_a_line(node: Path) -> None:
    text = (node / "hook").read_text()
    (node / "hook").write_text(text.replace("\nWAITING=20 ", "\nWAITING=3 "))
    (node / "go").unlink()  # who diagnoses goes on until it is there
    started = [ended(node, "FAILED", job) for job in range(1, 13)]
    until(lambda: sum(child.poll() is not None for child in started) >= 7, 90, "nobody was left out")
    (node / "go").touch()
    assert {child.wait(120) for child in started} == {0}
    logs = [p.read_text() for p in (node / "logs").glob("job-*.log")]
    left = [log for log in logs if "left out: 3 others wait here. By hand: doctor triage --slurm" in log]
    assert len(logs) == 12
    assert len(left) >= 7  # two at once, three wait
    assert len(left) + len(calls(node)) == 12 and max(map(int, (node / "together").read_text().split())) <= 2


def test_a_node_without_doctor_says_so(node: Path) -> None:
    (node / "doctor").unlink()
    assert ended(node, "FAILED").wait(60) == 0
    assert f"cannot run {node}/doctor" in (node / "logs" / "job-1.log").read_text()
