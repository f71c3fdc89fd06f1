"""The machine's own GPUs: NVML in a child. Without a card at hand a C library stands in for the driver's side."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.core.shell import Live, Recorded, Shell
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.machine import gpu_state
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine.gpu_tools import gpu_status

SOURCE = Path(__file__).parent / "machine" / "fake_nvml.c"
HAS_DRIVER = Path("/proc/driver/nvidia/version").exists()
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler to build the stand-in with")


def look(folder: Path, shell: Shell | None = None, pids: tuple[int, ...] = ()) -> ToolResult:
    folder.mkdir(exist_ok=True)
    return gpu_status(Workspace([folder], live=True, pids=pids, may_be_empty=True, shell=shell))


def values(result: ToolResult, key: str) -> list[object]:
    return [e.value for e in result.evidence if e.key == key]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", SOURCE], check=True)
    return folder


@pytest.fixture
def driver(library: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    return monkeypatch


@pytest.mark.skipif(HAS_DRIVER, reason="this machine has a driver")
def test_no_driver_is_no_fault_of_the_run(tmp_path: Path) -> None:
    result = look(tmp_path / "run")
    assert result.outcome == "not_applicable" and not result.evidence
    assert "no NVIDIA driver on this machine" in result.summary and "Library Not Found" in result.summary


@pytest.mark.skipif(not HAS_DRIVER, reason="no NVIDIA driver here")
def test_the_real_cards(tmp_path: Path) -> None:
    result = look(tmp_path / "run")
    assert result.outcome in {"clean", "finding"} and values(result, "gpu.count")


@needs_gcc
def test_healthy_cards(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "healthy")
    result = look(tmp_path / "run")
    assert result.outcome == "clean" and result.summary.startswith("2 GPUs"), result.summary
    assert (
        values(result, "gpu.healthy_now") == [True]
        and not values(result, "gpu.health_clean")
        and values(result, "gpu.count") == [2]
    )
    assert all(e.kind == "command" and e.text.startswith("{") for e in result.evidence)


@needs_gcc
def test_a_sick_card(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "sick")
    driver.setenv("FAKE_PID", str(os.getpid()))
    result = look(tmp_path / "run", pids=(1,))
    one = {e.key: e.value for e in result.evidence}
    assert result.outcome == "finding"
    assert one["gpu.ecc_uncorrectable"] == 3 and one["gpu.ecc_lifetime"] == 9 and one["gpu.remap_pending"] is True
    assert one["gpu.throttle"] == "hw_thermal_slowdown" and one["gpu.clock_low"] == 600 and one["gpu.hot"] == 89
    assert one["gpu.pcie_width_low"] == 8 and one["gpu.pcie_gen_low"] == 3 and one["gpu.power_limit_low"] == 0.5
    assert one["gpu.nvlink_errors"] == "CRC 77" and one["gpu.nvlink_inactive"] == "GPU 1 link 2"
    assert one["gpu.memory_used"] == 40000 << 20 and "gpu.health_clean" not in one
    assert str(os.getpid()) in one["gpu.other_process"] and "39000 MiB" in one["gpu.other_process"]
    assert len(values(result, "gpu.process")) == 2
    assert all(gpu_status.allows(e.key) for e in result.evidence)


@needs_gcc
def test_the_jobs_own_processes_are_no_strangers(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "sick")
    driver.setenv("FAKE_PID", str(os.getpid()))
    result = look(tmp_path / "run", pids=(os.getppid(),))  # the named process is the parent of the one on the card
    assert not [v for v in values(result, "gpu.other_process") if str(os.getpid()) in str(v)]


@needs_gcc
def test_memory_that_nobody_holds(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "sick")
    assert values(look(tmp_path / "run"), "gpu.memory_unowned") == [40000 << 20]


@needs_gcc
def test_a_lost_card(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "lost")
    result = look(tmp_path / "run")
    assert result.outcome == "finding" and values(result, "gpu.missing") == ["GPU 1: GPU is lost"]
    assert values(result, "gpu.name") == ["NVIDIA H100 80GB HBM3"]  # the other one still answers


@needs_gcc
def test_a_driver_that_never_answers(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "hang")
    driver.setattr(gpu_state, "SECONDS", 2.0)
    result = look(tmp_path / "run")  # the stand-in sleeps for an hour
    assert result.outcome == "finding"
    assert values(result, "gpu.no_answer") == ["memory of GPU 1"] and "did not answer within 2 s" in result.summary


@needs_gcc
@pytest.mark.parametrize(("mode", "key"), [("mismatch", "gpu.driver_mismatch"), ("unloaded", "")])
def test_a_driver_that_refuses(mode: str, key: str, driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", mode)
    result = look(tmp_path / "run")
    assert [e.key for e in result.evidence] == ([key] if key else [])
    assert result.outcome == ("finding" if key else "not_applicable")


@needs_gcc
def test_no_card_in_sight(driver: pytest.MonkeyPatch, tmp_path: Path) -> None:
    driver.setenv("FAKE_NVML", "none")
    assert values(look(tmp_path / "run"), "gpu.count") == [0]


def test_cards_that_the_driver_does_not_show(tmp_path: Path) -> None:
    said = '{"field": "pci_cards", "value": 8}\n{"field": "count", "value": 7}\n{"gpu": 0, "field": "name", "value": "L4"}\n'
    argv = [sys.executable, "-I", "-m", "traindoctor.agent.jobs.probes.nvml"]
    (tmp_path / "shell.json").write_text(json.dumps([{"argv": argv, "code": 0, "stdout": said}]))
    assert values(look(tmp_path / "run", Recorded(tmp_path / "shell.json")), "gpu.hidden") == [1]


@pytest.mark.skipif(HAS_DRIVER, reason="this machine has a driver")
@pytest.mark.parametrize(
    ("says", "key", "outcome"),
    [
        (
            "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18",
            "gpu.driver_mismatch",
            "finding",
        ),
        ("echo 'NVIDIA-SMI has failed because it could not'; exit 9", "", "failed"),
        ("echo 'No devices were found'; exit 6", "gpu.missing", "finding"),
        ("sleep 60", "gpu.no_answer", "finding"),
        (f"python3 {Path(__file__).parent / 'machine' / 'old_smi.py'} $*", "gpu.throttle", "finding"),
        (f"cat {Path(__file__).parent / 'machine' / 'smi.xml'}", "gpu.pcie_width_low", "finding"),
    ],
)
def test_nvidia_smi_where_the_library_is_missing(
    says: str, key: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("traindoctor.agent.reading.machine.gpu_state.SMI_SECONDS", 2.0)
    result = look(tmp_path / "run", Live())
    assert result.outcome == outcome, result
    assert key == "" or key in {e.key for e in result.evidence}
