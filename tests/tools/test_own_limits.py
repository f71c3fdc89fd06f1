"""Scripts that end their own run: a limit around the launch, loops that kill; and scripts that only look so."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.logs.log_tools import own_limits

from tests.tools.captured import look

SHELL_WATCH = """#!/bin/bash
while sleep 30; do
  idle=$(( $(date +%s) - $(stat -c %Y "$LOG") ))
  if [ "$idle" -gt 600 ]; then
    echo "guard: nothing written for ${idle}s, stopping job $PID"
    kill -9 "$PID"
  fi
done
"""
PYTHON_WATCH = """import os, signal, time
while True:
    time.sleep(60)
    if time.time() - os.path.getmtime(path) > limit:
        print(f"[guard] no heartbeat since {age:.0f} s, ending {pid}")
        os.kill(pid, signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("timeout 8h python train.py >> out.log 2>&1\n", "exited with code 124"),
        ('timeout -s TERM -k 30 "$LIMIT" torchrun --nproc-per-node 4 train.py\n', "rc=124"),
        ("srun bash -c 'timeout --signal=USR1 3600s accelerate launch train.py'\n", "step returned exit status 124"),
    ],
)
def test_a_limit_around_the_launch_and_its_status(script: str, told: str, tmp_path: Path) -> None:
    seen = look(own_limits, tmp_path, run_sh=script, train_log=f"step 10 loss 2.0\nstep 20 loss 1.9\n{told}\n")
    assert seen.result.outcome == "finding" and len(seen.values("limit.timeout_ended")) == 2
    assert seen.lines("limit.timeout_ended") == [told, script.rstrip("\n")]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("python train.py\n", "exited with code 124"),  # nobody set a limit
        ("timeout 60 nvidia-smi\npython train.py\n", "exited with code 124"),  # of another command
        ("timeout 8h python train.py\n", "exited with code 1"),
        ("# timeout 8h python train.py\npython train.py\n", "exited with code 124"),
        ("timeout 8h python train.py\n", "step 124 loss 1.2"),
    ],
)
def test_no_limit_is_told_without_both(script: str, told: str, tmp_path: Path) -> None:
    seen = look(own_limits, tmp_path, run_sh=script, train_log=f"step 10 loss 2.0\n{told}\n")
    assert seen.result.outcome == "clean"


@pytest.mark.parametrize(
    ("name", "script", "told"),
    [
        ("guard_sh", SHELL_WATCH, "guard: nothing written for 617s, stopping job 4242"),
        ("guard_py", PYTHON_WATCH, "[guard] no heartbeat since 901 s, ending 77"),
    ],
)
def test_a_watcher_is_known_by_its_own_sentence(name: str, script: str, told: str, tmp_path: Path) -> None:
    seen = look(own_limits, tmp_path, **{name: script, "guard_log": f"02:10:11 {told}\n"})
    assert told in seen.lines("limit.watcher_killed")[0] and "kill" in seen.lines("limit.watcher_killed")[1]


@pytest.mark.parametrize(
    "script",
    [
        SHELL_WATCH,  # it is there and said nothing
        'echo "removing what is left of the last job"\npkill -f train.py\npython train.py\n',  # no loop: before the start
        SHELL_WATCH.replace('kill -9 "$PID"', 'kill -0 "$PID"'),  # it only looks
    ],
)
def test_a_watcher_that_did_nothing_is_not_blamed(script: str, tmp_path: Path) -> None:
    told = "guard: nothing written for 617s, stopping job 4242\n" if "kill -0" in script else ""
    log = f"removing what is left of the last job\nstep 10 loss 2.0\n{told}"
    assert look(own_limits, tmp_path, guard_sh=script, train_log=log).result.outcome == "clean"
