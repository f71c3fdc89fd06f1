"""An all-reduce for real over Gloo, all_reduce_perf as it prints, slow pairs, and recorded reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.shell import Completed
from traindoctor.agent.reading.logs.nccl_lines import row_of
from traindoctor.agent.reading.machine.ib_links import link_between, links
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.collectives.nccl_test import nccl_reports, nccl_test

from tests.tools.captured import Seen, look

TABLE = """# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        262144     float     sum      -1    52.30   20.05   35.09      0    51.80   20.24   35.43      0
  1073741824     268435456     float     sum      -1   4012.5  267.60  468.30      {w}   4010.0  267.77  468.59    N/A
# Out of bounds values : {w} {said}
# Avg bus bandwidth    : 251.9
"""
TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-55\nGPU1\tNV18\t X \t0-55\n"


class Machine:
    """A shell that answers from a table by the first words of a command."""

    def __init__(self, **answers: tuple[int | None, str, str]) -> None:
        self.answers = answers

    def run(self, argv, timeout=10.0, env=None, cwd=None) -> Completed:  # type: ignore[no-untyped-def]
        told = " ".join(argv)
        for words, (code, out, err) in self.answers.items():
            if words.replace("__", " ") in told.replace("-", "_"):
                return Completed(tuple(argv), code, out, err)
        return Completed(tuple(argv), None, "", f"{argv[0]}: not installed")


def ask(machine: Machine | None, folder: Path, **arguments) -> Seen:  # type: ignore[no-untyped-def]
    result = nccl_test(Workspace([folder], shell=machine, live=True, may_be_empty=True), **arguments)
    for e in result.evidence:
        assert nccl_test.allows(e.key), e.key
    return Seen(result, folder)


@pytest.mark.real
def test_gloo_over_loopback_for_real(tmp_path: Path) -> None:
    found = ask(None, tmp_path, ranks=3, pairwise=True, largest_mib=1, seconds=60, link="loopback")
    assert found.result.outcome in ("clean", "finding")  # a busy machine may make a pair look slow
    assert re.search(r"3 ranks over (?:gloo|nccl) ", found.result.summary) and found.one("nccl.test_bandwidth") > 0
    assert found.one("nccl.test_passed") is True and found.one("nccl.test_out_of_bounds") == 0
    pairs = found.result.text
    assert all(f"ranks {p}" in pairs for p in ("0-1", "0-2", "1-2"))


def test_all_reduce_perf_where_it_is_installed(tmp_path: Path) -> None:
    machine = Machine(
        nvidia_smi___L=(0, "GPU 0: NVIDIA H100 80GB HBM3 (UUID: x)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: y)\n", ""),
        topo=(0, TOPOLOGY, ""), query_gpu=(0, "NVIDIA H100 80GB HBM3, 5\n" * 2, ""),
        all_reduce_perf=(0, TABLE.format(w=0, said="OK"), ""),
    )  # fmt: skip
    found = ask(machine, tmp_path)
    assert "(nvlink4)" in found.result.text and found.one("nccl.test_bandwidth") == 468.59
    assert found.result.outcome == "clean" and found.one("nccl.test_passed") is True


def test_slower_than_the_link_and_wrong(tmp_path: Path) -> None:
    table = TABLE.format(w=3, said="FAILED").replace("468.30", "41.2").replace("468.59", "41.3")
    machine = Machine(
        nvidia_smi___L=(0, "GPU 0: a\nGPU 1: b\n", ""), topo=(0, TOPOLOGY, ""),
        query_gpu=(0, "NVIDIA H100 80GB HBM3, 5\n", ""), all_reduce_perf=(1, table, ""),
    )  # fmt: skip
    found = ask(machine, tmp_path)
    assert found.one("nccl.test_slow") < 0.2 and found.one("nccl.test_out_of_bounds") == 3
    assert found.result.outcome == "finding" and "NVLink 4" in found.result.summary


def test_the_rank_that_all_slow_pairs_have_in_common(tmp_path: Path) -> None:
    rows = [{"kind": "ranks", "ranks": 4, "backend": "nccl"}, {"kind": "size", "size": 4096, "busbw": 1.0, "wrong": 0}]
    rows += [
        {"kind": "pair", "a": a, "b": b, "busbw": 5.0 if 2 in (a, b) else 20.0, "wrong": 0}
        for a in range(4) for b in range(a + 1, 4)
    ]  # fmt: skip
    rows += [{"kind": "end"}]
    machine = Machine(torch=(0, "\n".join(map(json.dumps, rows)), ""))
    found = ask(machine, tmp_path, ranks=4, pairwise=True)
    assert "rank 2 is in all of them" in found.result.summary
    assert set(found.values("nccl.test_slow_pair")) == {"0-2", "1-2", "2-3"}


def test_what_cannot_be_run_is_told(tmp_path: Path) -> None:
    machine = Machine(torch=(1, "", "Traceback\nModuleNotFoundError: No module named 'torch'\n"))
    found = ask(machine, tmp_path)
    assert found.result.outcome == "failed" and "No module named 'torch'" in found.result.summary
    half = Machine(
        torch=(None, '{"kind": "size", "size": 4096, "busbw": 1.0, "wrong": 0}\nnot json {', "no answer within 20 s")
    )
    assert ask(half, tmp_path).values("nccl.test_failed")
    assert nccl_test(Workspace([tmp_path], may_be_empty=True)).outcome == "not_applicable"
    with pytest.raises(ToolError, match="no link"):
        ask(machine, tmp_path, link="rope")


def test_links_of_a_machine() -> None:
    assert (found := link_between(TOPOLOGY, "NVIDIA A100-SXM4-80GB, 4\n")) and found.name == "nvlink3"
    assert (found := link_between(TOPOLOGY.replace("NV18", "SYS"), "NVIDIA L40S, 4\n")) and found.name == "pcie4"
    assert link_between("", "") is None and all(k.low < k.high for k in links().values())


def test_rows_of_a_table() -> None:
    row = row_of(
        "     1048576        262144     float     sum      -1    52.30   20.05   35.09      0    51.80   20.24   35.43      2"
    )
    assert row and (row.size, row.bus, row.wrong) == (1048576, 35.43, 2)
    assert row_of("step 1 loss 2.0") is None and row_of("# size count type redop root time") is None


def test_a_recorded_table_with_wrong_values(tmp_path: Path) -> None:
    found = look(nccl_reports, tmp_path, test_log=TABLE.format(w=4, said="FAILED"))
    assert found.result.outcome == "finding" and "wrong values: 1073741824" in found.result.summary
    found = look(nccl_reports, tmp_path, test_log=TABLE.format(w=0, said="OK"))
    assert found.result.outcome == "clean" and "468.59 GB/s" in found.result.summary


def test_a_json_report(tmp_path: Path) -> None:
    side = {"time": 4010.0, "alg_bw": 267.0, "bus_bw": 467.3, "nwrong": 0}
    report = {
        "version": 3, "config": {"nthreads": 1}, "results": [{"size": 1 << 30, "count": 1 << 28, "type": "float", "redop": "sum",
        "root": -1, "out_of_place": side, "in_place": {**side, "bus_bw": 468.1}}],
        "out_of_bounds": {"count": 0, "okay": True}, "average_bus_bandwidth": 251.3, "errors": [],
    }  # fmt: skip
    found = look(nccl_reports, tmp_path, report_json=json.dumps(report, indent=1))
    assert "468.1 GB/s" in found.result.summary and found.one("nccl.test_passed") is True
    report["out_of_bounds"] = {"count": 7, "okay": False}
    report["results"][0]["in_place"]["nwrong"] = 7
    found = look(nccl_reports, tmp_path, report_json=json.dumps(report))
    assert found.one("nccl.test_failed") and f"wrong values: {1 << 30}" in found.result.summary


@pytest.mark.parametrize(
    "text",
    [
        '{"average_bus_bandwidth": 1, "results": 5}',
        '{"average_bus_bandwidth": [',
        '{"results": [[["bus_bw"]], "bus_bw"',
    ],
)
def test_broken_reports(text: str, tmp_path: Path) -> None:
    assert look(nccl_reports, tmp_path, report_json=text).result.outcome in ("failed", "not_applicable")
