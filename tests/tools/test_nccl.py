"""NCCL's own lines: transports, failures, harmless warnings, tests, and trials of versions."""


from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.tools.collectives.nccl_test import nccl_versions
from traindoctor.agent.tools.collectives.nccl_tools import nccl_log

from tests.tools.captured import look

N = "node1:100:200 [0] "


def test_a_single_node_without_infiniband_is_healthy(tmp_path: Path) -> None:
    log = (
        f"{N}NCCL INFO NET/Plugin : No plugin found (libnccl-net.so).\n\n"
        f"{N}misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]\n"
        f"{N}NCCL INFO NET/Socket : Using [0]eth0:10.0.0.4<0>\n"
        f"{N}NCCL INFO comm 0x7f4a rank 0 nranks 2 cudaDev 0 nvmlDev 0 - Init COMPLETE\n"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 4.6\n"
    )
    seen = look(nccl_log, tmp_path, test_log=log)
    assert seen.result.outcome == "clean" and seen.one("nccl.test_passed") is True
    assert len(seen.values("nccl.harmless")) == 2 and not seen.values("nccl.warn")
    assert seen.one("nccl.init_complete") is True and seen.one("nccl.test_bandwidth") == 4.6


def test_two_nodes_over_sockets_miss_their_infiniband(tmp_path: Path) -> None:
    log = "".join(f"{h}:1:2 [0] NCCL INFO NET/IB : No device found.\n{h}:1:2 [0] NCCL INFO Using network Socket\n" for h in "ab")
    seen = look(nccl_log, tmp_path, train_log=log)
    assert seen.one("nccl.ib_missing") is True and seen.one("nccl.socket_between_nodes") is True
    assert "Socket" in seen.values("nccl.net")


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("nccl.duplicate_gpu", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000",
         "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 2000"),
        ("nccl.cuda_failure", "invalid argument", N + "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'"),
        ("nccl.ib_error", None, N + "ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.2.2.6<54862> with "
                                    "status=12 opcode=0 len=0 vendor err 129 (Recv)"),
        ("nccl.shm_failure", None, N + "misc/shmutils.cc:72 NCCL WARN Error while creating shared memory segment "
                                       "/dev/shm/nccl-x (size 9637888)"),
        ("nccl.result", "unhandled system error", "ncclSystemError: System call (e.g. socket, malloc) or external library call failed"),
        ("nccl.result", "remote error", "NCCL error: remote process exited or there was a network error, NCCL version 2.21.5"),
        ("nccl.connection", "refused", N + "misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.9<4444> "
                                          "failed : Connection refused"),
        ("nccl.store_connection", "timed out", "torch.distributed.DistNetworkError: The client socket has timed out after 60s "
                                              "while trying to connect to (10.0.0.1, 29500)."),
        ("nccl.mismatched_collective", None, N + "init.cc:1247 NCCL WARN Mismatched collective detected, please check your "
                                                "collective calls at and around rank 39"),
        ("nccl.version_mismatch", None, N + "bootstrap.cc:10 NCCL WARN Mismatched NCCL version detected : ncclGetVersion 1 != 2"),
        ("nccl.interface", "docker0", N + "NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>"),
        ("nccl.env", "NCCL_P2P_DISABLE set by environment to 1.", N + "NCCL INFO NCCL_P2P_DISABLE set by environment to 1."),
        ("nccl.p2p", "SHM", N + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct"),
    ],
)  # fmt: skip
def test_single_lines(key: str, value: str | None, line: str, tmp_path: Path) -> None:
    found = look(nccl_log, tmp_path, train_log=f"start\n{line}\n").values(key)
    assert found and (value is None or value in found)


def test_nvls_failure_and_failed_test(tmp_path: Path) -> None:
    log = (
        N + "transport/nvls.cc:244 NCCL WARN Cuda failure 1 'invalid argument'\n"
        "node1: Test NCCL failure common.cu:1005 'unhandled cuda error (run with NCCL_DEBUG=INFO for details) / '\n"
    )
    seen = look(nccl_log, tmp_path, test_log=log)
    assert seen.values("nccl.nvls_failure") and seen.values("nccl.test_failed") and seen.result.outcome == "finding"


def test_initialization_that_never_completes(tmp_path: Path) -> None:
    start = "a:1:2 [{r}] NCCL INFO comm 0x1{r} rank {r} nranks 4 cudaDev {r} busId b commId 0x9 - Init {what}\n"
    log = "".join(start.format(r=r, what="START") for r in range(4)) + start.format(r=0, what="COMPLETE")
    assert look(nccl_log, tmp_path, train_log=log).one("nccl.init_incomplete") == [1, 2, 3]


def test_no_nccl_is_not_applicable(tmp_path: Path) -> None:
    assert look(nccl_log, tmp_path, train_log="step 1 loss 2\n").result.outcome == "not_applicable"
    assert look(nccl_versions, tmp_path, train_log="step 1 loss 2\n").result.outcome == "not_applicable"


def test_a_table_of_trials(tmp_path: Path) -> None:
    table = "program,nccl,gpus,trials,hung\nr,2.18.1,8,5,5\nr,2.20.5,8,5,0\nr,2.20.5,16,2,0\n"
    seen = look(nccl_versions, tmp_path, trials_csv=table)
    assert seen.values("nccl.version_comparison") == [
        {"version": "2.18.1", "ok": False}, {"version": "2.20.5", "ok": True}, {"version": "2.20.5", "ok": True},
    ]  # fmt: skip


def test_a_table_where_every_version_fails_compares_nothing(tmp_path: Path) -> None:
    table = "nccl,result\n2.18.1,hang\n2.20.5,hang\n"
    assert not look(nccl_versions, tmp_path, trials_csv=table).values("nccl.version_comparison")


def test_logs_side_by_side_part_at_a_point(tmp_path: Path) -> None:
    head = "x:1:1 [0] NCCL INFO NCCL version {v}+cuda12.2\nsize 1024 done\nsize 2048 done\n"
    bad = head.format(v="2.26.2") + "RuntimeError: CUDA error: an illegal memory access was encountered\nat size 4096\n"
    good = head.format(v="2.27.3") + "size 4096 done\nsize 8192 done\n"
    seen = look(nccl_versions, tmp_path, bad_log=bad, good_log=good)
    assert {"version": "2.26.2", "ok": False} in seen.values("nccl.version_comparison")
    assert {"version": "2.27.3", "ok": True} in seen.values("nccl.version_comparison")
    assert seen.one("nccl.trial_passed") == "size 4096 done" and seen.one("nccl.trial_failed_at") == "at size 4096"


def test_the_version_nccl_prints_is_preferred(tmp_path: Path) -> None:
    log = "torch 2.7 nccl (2, 26, 2)\nx:1:1 [0] NCCL INFO NCCL version 2.26.2+cuda12.2\n"
    seen = look(nccl_versions, tmp_path, train_log=log)
    assert seen.values("nccl.version") == ["2.26.2"] and "NCCL INFO" in seen.lines("nccl.version")[0]


def test_an_aborted_connection_names_its_peer(tmp_path: Path) -> None:
    line = N + "misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to fe80::966d:ae03%ib1<17943> failed : Software caused connection abort\n"
    seen = look(nccl_log, tmp_path, train_log=line)
    assert seen.one("nccl.connection") == "connection abort" and seen.one("nccl.connection_peer").startswith("fe80::966d")


def test_the_oldest_wording_of_interfaces(tmp_path: Path) -> None:
    log = N + "NCCL INFO NET : Using interface ib0:12.12.12.102<0>\n" + N + "NCCL INFO NET/IB : Using interface ib0 for sideband communication\n"
    seen = look(nccl_log, tmp_path, train_log=log + N + "NCCL INFO Using internal Network Socket\n")
    assert seen.one("nccl.interface") == "ib0" and seen.values("nccl.net") == ["Socket"]


def test_wrong_values_fail_the_test(tmp_path: Path) -> None:
    seen = look(nccl_log, tmp_path, test_log="NCCL version 2.20.5+cuda12.4\n# Out of bounds values : 12 FAILED\n")
    assert seen.one("nccl.test_out_of_bounds") == 12 and not seen.values("nccl.test_passed")
    assert seen.values("nccl.test_failed") and seen.result.outcome == "finding"
