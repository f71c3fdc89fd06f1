"""Warnings of NCCL and RCCL ranked by cause, and the transport chosen."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.tools.collectives.nccl_tools import kinds, nccl_log, nccl_warnings

from tests.tools.captured import look

N = "node1:100:200 [0] "


def test_every_cause_is_known() -> None:
    assert {k.cause for k in kinds()} <= {*causes(), "none"}


def test_the_most_telling_of_many(tmp_path: Path) -> None:
    log = (
        N + "misc/socket.cc:77 (socketProgress) NCCL WARN socketProgress: Connection closed by remote peer node2<41>\n"
        + N + "NCCL INFO comm aborted\n"
        + "node2:7:8 [1] misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 9637888)\n"
    )  # fmt: skip
    seen = look(nccl_warnings, tmp_path, train_log=log)
    assert seen.one("nccl.likely_cause") == "memory.shm_too_small"
    assert [row.split()[-1] for row in seen.result.text.splitlines()[:2]] == ["shared_memory", "peer_gone"]
    assert "/dev/shm" in seen.lines("nccl.likely_cause")[0]


def test_a_closed_connection_alone_names_no_cause(tmp_path: Path) -> None:
    seen = look(
        nccl_warnings, tmp_path, train_log=N + "misc/socket.cc:77 NCCL WARN Connection closed by remote peer b<4>\n"
    )
    assert not seen.values("nccl.likely_cause") and seen.result.summary.startswith("peer_gone")


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ("dist.duplicate_gpu", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000"),
        ("dist.ib_link", "NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=0"),
        ("dist.nccl_version", "Mismatched NCCL version detected : ncclGetVersion 22705 != 22606"),
        ("dist.network_interface", "Bootstrap : no socket interface found"),
        ("dist.connection_refused", "socketPollConnect: connect to 10.0.0.9<4444> failed : Connection refused"),
        ("dist.rendezvous", "Bootstrap Root : rank 1 of 4 ranks has already checked in"),
        ("env.ulimit", "Call to ibv_reg_mr failed with error Cannot allocate memory"),
        ("memory.batch_too_large", "Cuda failure 'out of memory'"),
        ("dist.nccl_version", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 536870912"),
    ],
)
def test_kinds(cause: str, message: str, tmp_path: Path) -> None:
    seen = look(nccl_warnings, tmp_path, train_log=f"{N}file.cc:10 (call) NCCL WARN {message}\n")
    assert seen.values("nccl.likely_cause") == [cause]


def test_transport_and_initialization(tmp_path: Path) -> None:
    log = "".join(N + f"NCCL INFO {m}\n" for m in (
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM", "Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/3/GDRDMA",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", "Init timings - ncclCommInitRank: rank 0 nranks 16 total 3.21 (kernels 0.2)",
    ))  # fmt: skip
    seen = look(nccl_warnings, tmp_path, train_log=log)
    told = [row.partition(" transport ")[2] for row in seen.result.text.splitlines()]
    assert told[:2] == ["P2P/CUMEM", "NET/IB/GDRDMA"] and "GPU Direct RDMA enabled" in seen.result.text
    assert "seconds of initialization 3.21" in seen.result.text and seen.result.outcome == "clean"


def test_rccl(tmp_path: Path) -> None:
    log = "n1:1:1 [0] NCCL INFO RCCL version 2.22.3+hip6.4 HEAD:9d1f\nn1:1:2 [0] src/init.cc:10 NCCL WARN HIP failure 'out of memory'\n"
    seen = look(nccl_warnings, tmp_path, train_log=log)
    assert "RCCL 2.22.3" in seen.result.text and seen.one("nccl.likely_cause") == "memory.batch_too_large"
    assert look(nccl_log, tmp_path).one("nccl.cuda_failure") == "out of memory"


def test_without_nccl(tmp_path: Path) -> None:
    assert look(nccl_warnings, tmp_path, train_log="step 1 loss 2\n").result.outcome == "not_applicable"
