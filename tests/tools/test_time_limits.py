"""Time limits that were set against the limits that errors name."""

from __future__ import annotations

import pytest
from traindoctor.agent.tools.settings.settings_tools import check_time_limits

from tests.tools.folders import workspace

TRACE = """\
Traceback (most recent call last):
  File "/srv/rollout/engine_manager.py", line 88, in wait_engine_ready
    raise TimeoutError(f"rollout engine not ready in {{limit}} seconds")
TimeoutError: rollout engine not ready {told}
"""


@pytest.mark.parametrize(
    ("asked", "told", "found"),
    [
        ("export ROLLOUT_ENGINE_TIMEOUT=1200\n", "in 300 seconds", True),
        ("export ROLLOUT_ENGINE_TIMEOUT=300\n", "in 300 seconds", False),
        ("export ROLLOUT_ENGINE_TIMEOUT=300\n", "after 304.2 s", False),  # told a little after the limit
        ("export ROLLOUT_ENGINE_TIMEOUT_MS=300000\n", "in 300 seconds", False),
        ("export ROLLOUT_ENGINE_TIMEOUT_MIN=5\n", "in 300 seconds", False),
        ("export ROLLOUT_ENGINE_TIMEOUT=20m\n", "within 5 minutes", True),
        ("export WANDB_HTTP_TIMEOUT=90\n", "in 300 seconds", False),  # somebody else's limit
        ("export ROLLOUT_ENGINE_TIMEOUT=soon\n", "in 300 seconds", False),
        ("export ROLLOUT_ENGINE_TIMEOUT=1200\n", "at all", False),
    ],
)
def test_limits(tmp_path, asked, told, found):
    ws = workspace(tmp_path, launch_sh=asked + "python train.py\n", train_log=TRACE.format(told=told))
    result = check_time_limits(ws)
    assert (result.outcome == "finding") is found
    if found:
        assert {e.file for e in result.evidence} == {"launch.sh", "train.log"}


COLLECTIVE = """\
Traceback (most recent call last):
  File "/opt/torch/distributed/distributed_c10d.py", line 2810, in all_reduce
    work.wait()
RuntimeError: NCCL collective timed out after 600 seconds
"""


@pytest.mark.parametrize(
    "asked", ["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=60000"]
)
def test_the_watchdogs_other_limits_are_not_that_of_a_collective(tmp_path, asked):
    ws = workspace(tmp_path, launch_sh=f"export {asked}\npython train.py\n", train_log=COLLECTIVE)
    assert check_time_limits(ws).outcome == "clean"
