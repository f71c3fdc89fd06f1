"""Ports of the fabric: recorded ibstat and counters, and our own probe over a tree as the kernel shows it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.core.shell import Recorded
from traindoctor.agent.reading.machine.ib_links import facts, ports
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine.host_tools import ib_status

from tests.tools.captured import look

IBSTAT = """$ ibstat
CA 'mlx5_0'
	CA type: MT4129
	Number of ports: 1
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 400
		Base lid: 12
		SM lid: 1
		Link layer: InfiniBand
CA 'mlx5_1'
	CA type: MT4129
	Port 1:
		State: Active
		Physical state: LinkUp
		Rate: 200
		Base lid: 13
		SM lid: 1
		Link layer: InfiniBand
CA 'mlx5_2'
	Port 1:
		State: Down
		Physical state: Polling
		Rate: 10
		Base lid: 65535
		SM lid: 0
		Link layer: InfiniBand
CA 'mlx5_3'
	Port 1:
		State: Initializing
		Physical state: LinkUp
		Rate: 400
		SM lid: 0
		Link layer: InfiniBand
"""
DEVINFO = """hca_id:	mlx5_bond_0
	transport:			InfiniBand (0)
		port:	1
			state:			PORT_ACTIVE (4)
			active_mtu:		4096 (5)
			sm_lid:			0
			link_layer:		Ethernet
		port:	2
			state:			PORT_DOWN (1)
			link_layer:		Ethernet
"""


def test_ibstat(tmp_path: Path) -> None:
    seen = look(ib_status, tmp_path, ibstat_txt=IBSTAT)
    assert seen.result.outcome == "finding" and seen.values("ib.rate_low") == ["mlx5_1/1 200 of 400 Gb/s"]
    assert seen.values("ib.down") == ["mlx5_2/1 Down, Polling", "mlx5_3/1 Initializing, LinkUp"]
    assert seen.told("ib.no_subnet_manager") == ["mlx5_3/1"]
    assert seen.lines("ib.down")[0].strip() == "Physical state: Polling"


def test_ibv_devinfo(tmp_path: Path) -> None:
    seen = look(ib_status, tmp_path, devinfo_txt="$ ibv_devinfo\n" + DEVINFO)
    assert seen.values("ib.port") == ["mlx5_bond_0/1 up Ethernet"] and seen.values("ib.down") == [
        "mlx5_bond_0/2 PORT_DOWN (1)"
    ]


def test_counters_count_by_their_rise(tmp_path: Path) -> None:
    one = "/sys/class/infiniband/mlx5_{}/ports/1/counters/{}:{}\n"
    text = one.format(0, "link_downed", 3) + one.format(0, "symbol_error", 7) + "later\n"
    text += one.format(0, "link_downed", 5) + one.format(0, "symbol_error", 7) + one.format(0, "port_xmit_data", 9)
    seen = look(ib_status, tmp_path, counters_txt=text)
    assert seen.values("ib.errors_rising") == ["mlx5_0/1 link_downed +2"]
    assert seen.told("ib.errors_counted") == ["mlx5_0/1 symbol_error 7"]


def test_all_up_is_clean(tmp_path: Path) -> None:
    assert look(ib_status, tmp_path, ibstat_txt=IBSTAT.split("CA 'mlx5_1'")[0]).result.outcome == "clean"


@pytest.mark.skipif(Path("/sys/class/infiniband").is_dir(), reason="this machine has ports")
def test_a_machine_without_ports(tmp_path: Path) -> None:
    result = ib_status(Workspace([tmp_path], live=True, may_be_empty=True))
    assert result.outcome == "not_applicable" and "no InfiniBand" in result.summary


def test_the_probe_over_a_tree_like_the_kernels(tmp_path: Path) -> None:
    port = tmp_path / "sys" / "mlx5_0" / "ports" / "1"
    (port / "counters").mkdir(parents=True)
    for name, value in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", "100 Gb/sec (1X HDR)"),
                        ("link_layer", "InfiniBand"), ("sm_lid", "0x1"), ("counters/link_downed", "4")):  # fmt: skip
        (port / name).write_text(value + "\n")
    threading.Timer(0.7, lambda: (port / "counters" / "link_downed").write_text("6\n")).start()
    argv = [sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.ib"]
    said = subprocess.run([*argv, "1.5", str(tmp_path / "sys")], capture_output=True, text=True, check=True).stdout
    (tmp_path / "shell.json").write_text(json.dumps([{"argv": [*argv, "1"], "code": 0, "stdout": said}]))
    run = tmp_path / "run"
    run.mkdir()
    shell = Recorded(tmp_path / "shell.json")
    result = ib_status(Workspace([run], live=True, may_be_empty=True, shell=shell))
    one = {e.key: e.value for e in result.evidence}
    assert one["ib.errors_rising"] == "mlx5_0/1 link_downed +2" and one["ib.width_low"] == "mlx5_0/1 1 lanes"
    assert one["ib.port"] == "mlx5_0/1 up 100 Gb/sec (1X HDR) InfiniBand"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=60) | st.sampled_from((IBSTAT + DEVINFO).splitlines()), max_size=30))
def test_any_mixture_of_lines(texts: list[str]) -> None:
    list(facts(ports(Line(i + 1, 0, t.encode()) for i, t in enumerate(texts))))
