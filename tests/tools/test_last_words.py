"""Standstills without a watchdog: who is through with the epoch, who still worked, whose replica differs."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.collectives.watchdog import watchdog
from traindoctor.agent.tools.logs.ranks_tools import rank_roster
from traindoctor.agent.tools.weights.replicas_tools import replica_sums

from tests.tools.captured import Seen, look

WAIT = "[rank{rank}]: RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 60000ms for {way} operation to complete\n"
IN_STEP = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/data/run/train.py", line 94, in <module>\n'
    "[rank{rank}]:     loss.backward()\n"
    '[rank{rank}]:   File "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py", line 623, in backward\n'
    "[rank{rank}]:     torch.autograd.backward(\n"
)
IN_BARRIER = IN_STEP.replace("loss.backward()", "dist.barrier()").replace("torch/_tensor.py", "torch/distributed/distributed_c10d.py").replace(
    "in backward", "in barrier"
).replace("torch.autograd.backward(", "work.wait()")  # fmt: skip


def log(rank: int, *lines: str) -> str:
    return "".join(f"2026-03-04 10:00:{second:02d} [RANK {rank}] {text}\n" for second, text in enumerate(lines, 10))


def ranks(folder: Path, zero: str, one: str, errors: str) -> Seen:
    return look(rank_roster, folder, rank0_log=zero, rank1_log=one, launch_log=errors)


STEPS = ("epoch 3 step 380 loss 1.2", "epoch 3 step 400 loss 1.1")
BOTH = (
    IN_STEP.format(rank=0)
    + WAIT.format(rank=0, way="send")
    + IN_BARRIER.format(rank=1)
    + WAIT.format(rank=1, way="recv")
)


@pytest.mark.parametrize("end", ["epoch 3 done in 41 s", "epoch 3 finished after 401 steps", "end of epoch 3"])
def test_one_rank_leaves_the_epoch_while_another_has_a_batch(end: str, tmp_path: Path) -> None:
    seen = ranks(tmp_path, log(0, *STEPS), log(1, *STEPS, end), BOTH)
    assert seen.values("rank.left_epoch_early") == [1, 1] and end in seen.lines("rank.left_epoch_early")[0]


@pytest.mark.parametrize(
    ("zero", "one", "errors"),
    [
        ((*STEPS, "epoch 3 done"), (*STEPS, "epoch 3 done"), BOTH),  # both are through
        ((*STEPS, "epoch 3 done"), STEPS, BOTH),  # rank 0 alone may be the one that tells ends
        (STEPS, (*STEPS, "epoch 3 done"), ""),  # a run that still goes on
        (STEPS, (*STEPS, "epoch 3 done"), IN_BARRIER.format(rank=0) + WAIT.format(rank=0, way="recv")),
    ],
)
def test_nobody_left_early(zero: tuple[str, ...], one: tuple[str, ...], errors: str, tmp_path: Path) -> None:
    assert not ranks(tmp_path, log(0, *zero), log(1, *one), errors).values("rank.left_epoch_early")


def test_the_rank_that_wrote_on_while_another_waited(tmp_path: Path) -> None:
    waits = log(1, "epoch 3 done") + WAIT.format(rank=1, way="recv")
    busy = log(0, "epoch 3 done") + "2026-03-04 10:01:02 [RANK 0] scored 250/2500\n"
    seen = look(watchdog, tmp_path, rank0_log=busy, rank1_log=waits)
    assert seen.one("watchdog.silent_rank_works") == 0 and "250/2500" in seen.lines("watchdog.silent_rank_works")[0]


def test_a_rank_that_fell_silent_at_once_did_not_work(tmp_path: Path) -> None:
    waits = log(1, "epoch 3 done") + WAIT.format(rank=1, way="recv")
    seen = look(watchdog, tmp_path, rank0_log=log(0, "epoch 3 done"), rank1_log=waits)
    assert not seen.values("watchdog.silent_rank_works")


def table(offset: float) -> str:
    rows = "".join(f"{e},{2 / e:.4f},{10.5 * e + offset:.6f}\n" for e in range(1, 7))
    return f"epoch,train_loss,param_sum\n{rows}"


def test_replicas_that_log_their_own_sums(tmp_path: Path) -> None:
    apart = look(replica_sums, tmp_path, worker0_csv=table(0), worker1_csv=table(0.25))
    assert sorted(apart.values("replica.parameters_differ")) == [10.5, 10.75]
    equal = look(replica_sums, tmp_path, worker0_csv=table(0), worker1_csv=table(0))
    assert equal.result.outcome == "clean" and "steps, equal" in equal.result.text


def test_parts_of_a_split_model_are_no_replicas(tmp_path: Path) -> None:
    seen = look(
        replica_sums,
        tmp_path,
        worker0_csv=table(0),
        worker1_csv=table(0.25),
        run_yaml="tensor_model_parallel_size: 2\n",
    )
    assert seen.result.outcome == "not_applicable"
