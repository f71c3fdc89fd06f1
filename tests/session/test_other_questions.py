"""A circumstance that fits one question is no answer to another, and advice fits the message it is given for."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

SOCKETS = """node1:412:412 [0] NCCL INFO NET/Socket : Using [0]eth1:10.18.0.3<0>
node1:412:412 [0] NCCL INFO Using network Socket
node1:412:980 [0] NCCL INFO Connected all rings
"""
LINK_LOCAL = """srv4:314:320 [0] NCCL INFO NET : Using interface ens5f0.3003:10.1.118.3<0>
srv4:314:320 [0] NCCL INFO NET : Using interface enp5s0:fe80::4eed:fbff:fe91:8317%enp5s0<0>
srv4:314:320 [0] NCCL INFO NET/Socket : 2 interfaces found
"""
FAILED = """step 1 loss 2.31
Traceback (most recent call last):
  File "train.py", line 31, in main
    loss = model(batch)
{message}
"""


def answered(folder: Path, text: str, question: str) -> Report:
    run = folder / "run"
    run.mkdir(exist_ok=True)
    (run / "train.log").write_text(text)
    *_, last = diagnose(Workspace([run], question=question), question, state=folder / "state", history=False)
    assert isinstance(last, ReportReady)
    return last.report


def test_a_slow_network_is_no_answer_to_a_hang(tmp_path: Path) -> None:
    hang = answered(tmp_path, SOCKETS, "deepspeed.initialize hangs on two nodes in docker")
    assert hang.root_cause.id != "speed.comms_bound"
    slow = answered(tmp_path, SOCKETS, "two nodes are slower than one, is it the network?")
    assert slow.root_cause.id == "speed.comms_bound"


def test_addresses_that_lead_no_further_than_one_cable_are_named(tmp_path: Path) -> None:
    report = answered(tmp_path, LINK_LOCAL, "NCCL hangs at the first step on two hosts")
    assert report.root_cause.id == "dist.network_interface"
    assert report.status != "confirmed"  # they are listed by sound runs too


@pytest.mark.parametrize(
    ("message", "cause", "words"),
    [
        ("RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
         "env.view_noncontiguous", "onto one device"),
        ("RuntimeError: expected scalar type Half but found Float", "env.view_noncontiguous", "one data type"),
        ("RuntimeError: view size is not compatible with input tensor's size and stride (at least one dimension spans "
         "across two contiguous subspaces). Use .reshape(...) instead.", "env.view_noncontiguous", "contiguous"),
        ("RuntimeError: a leaf Variable that requires grad is being used in an in-place operation.",
         "env.view_noncontiguous", "in-place"),
        ("ValueError: Attempting to unscale FP16 gradients.", "env.config_invalid", "float32"),
    ],
)  # fmt: skip
def test_the_first_advice_is_for_this_message(message: str, cause: str, words: str, tmp_path: Path) -> None:
    report = answered(tmp_path, FAILED.format(message=message), "it fails at the first steps")
    assert report.root_cause.id == cause
    assert words in report.fixes[0].title


def test_a_history_that_cannot_be_written_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr("traindoctor.agent.session.history.team.Team.remember", broken)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text("step 1 loss 2.0\nstep 2 loss 1.9\n")
    ws = Workspace([tmp_path / "run"], question="is it fine?")
    *_, last = diagnose(ws, "is it fine?", state=tmp_path / "state")
    assert isinstance(last, ReportReady) and any("entry in the history" in why for why in last.report.meta.degraded)
