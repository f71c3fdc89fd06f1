"""Captures of nvidia-smi in its forms; clean health is said only where it was looked at."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.machine import smi
from traindoctor.agent.reading.run.files import Line
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine.gpu_tools import gpu_status

from tests.tools.captured import look

QUERY = (
    "$ nvidia-smi --query-gpu=index,name,ecc.errors.uncorrected.volatile.total,remapped_rows.pending,"
    "remapped_rows.failure,clocks_event_reasons.hw_thermal_slowdown --format=csv,noheader\n"
)


def test_a_clean_query(tmp_path: Path) -> None:
    seen = look(
        gpu_status,
        tmp_path,
        smi_txt=QUERY + "0, NVIDIA H100, 0, No, No, Not Active\n1, NVIDIA H100, 0, No, No, Not Active\n$ \n",
    )
    assert seen.result.outcome == "clean" and seen.one("gpu.health_clean") is True and seen.one("gpu.count") == 2


def test_a_sick_card_in_a_query(tmp_path: Path) -> None:
    seen = look(
        gpu_status,
        tmp_path,
        smi_txt=QUERY + "0, NVIDIA H100, 0, No, No, Not Active\n1, NVIDIA H100, 12, Yes, Yes, Active\n",
    )
    assert seen.one("gpu.ecc_uncorrectable") == 12 and seen.one("gpu.remap_pending") and seen.one("gpu.remap_failure")
    assert seen.one("gpu.throttle") == "hw_thermal_slowdown" and not seen.values("gpu.health_clean")
    assert all(line.startswith("1,") for line in seen.lines("gpu.ecc_uncorrectable"))


def test_unknown_values_are_no_fault(tmp_path: Path) -> None:
    seen = look(gpu_status, tmp_path, smi_txt=QUERY + "0, NVIDIA L4, [N/A], [N/A], [N/A], [N/A]\n")
    assert seen.result.outcome == "clean" and not seen.values("gpu.health_clean")


def test_a_csv_with_its_header(tmp_path: Path) -> None:
    csv = (
        "timestamp, index, utilization.gpu [%], memory.used [MiB], temperature.gpu, clocks.current.sm [MHz], clocks.max.sm [MHz]\n"
        "2026/01/01 10:00:00, 0, 99 %, 1000 MiB, 91, 600 MHz, 1980 MHz\n2026/01/01 10:00:01, 0, 97 %, 2000 MiB, 88, 1900 MHz, 1980 MHz\n"
    )
    seen = look(gpu_status, tmp_path, gpu_csv=csv)
    assert seen.one("gpu.utilization") == 98.0 and seen.one("gpu.memory_used") == 2000 << 20
    assert seen.one("gpu.temperature") == 91 and seen.values("gpu.clock_low") == [600]


SECTIONS = """
==============NVSMI LOG==============
Driver Version                            : 570.1
Attached GPUs                             : 1
GPU 00000000:07:00.0
    Product Name                          : NVIDIA A100-SXM4-80GB
    PCI
        GPU Link Info
            Link Width
                Max                       : 16x
                Current                   : 8x
    Clocks Event Reasons
        Idle                              : Not Active
        HW Slowdown                       : Active
            HW Thermal Slowdown           : Not Active
            HW Power Brake Slowdown       : Active
    ECC Errors
        Volatile
            SRAM Uncorrectable            : 0
            DRAM Uncorrectable            : 3
    Remapped Rows
        Correctable Error                 : 0
        Pending                           : Yes
        Remapping Failure Occurred        : No
    GPU Recovery Action                   : GPU Reset
"""


def test_sections(tmp_path: Path) -> None:
    seen = look(gpu_status, tmp_path, smi_txt=SECTIONS)
    assert seen.one("gpu.name") == "NVIDIA A100-SXM4-80GB" and seen.one("gpu.ecc_uncorrectable") == 3
    assert set(seen.values("gpu.throttle")) == {"hw_slowdown", "hw_power_brake_slowdown"}
    assert seen.one("gpu.remap_pending") is True and not seen.values("gpu.remap_failure")
    assert seen.one("gpu.recovery_action") == "GPU Reset" and seen.one("gpu.pcie_width_low") == 8


def test_the_text_and_the_xml_of_one_tree_say_the_same(tmp_path: Path) -> None:
    """The highest clock is no clock of now, and errors of a lifetime are none of this run, in either form."""
    text = (
        "Attached GPUs                             : 1\nGPU 00000000:07:00.0\n"
        "    Utilization\n        GPU                               : 97 %\n"
        "    Ecc Errors\n        Aggregate\n            Double Bit\n                Total                     : 5\n"
        "    Clocks\n        SM                                : 600 MHz\n"
        "    Max Clocks\n        SM                                : 1980 MHz\n"
    )
    xml = (
        "<?xml version='1.0'?>\n<nvidia_smi_log>\n<gpu>\n<utilization><gpu_util>97 %</gpu_util></utilization>\n"
        "<ecc_errors><aggregate><double_bit><total>5</total></double_bit></aggregate></ecc_errors>\n"
        "<clocks><sm_clock>600 MHz</sm_clock></clocks>\n<max_clocks><sm_clock>1980 MHz</sm_clock></max_clocks>\n"
        "</gpu>\n</nvidia_smi_log>\n"
    )
    for form in (text, xml):
        seen = look(gpu_status, tmp_path, smi_txt=form)
        assert seen.values("gpu.clock_low") == [600] and seen.values("gpu.utilization") == [97.0]
        assert seen.values("gpu.ecc_lifetime") == [5] and not seen.values("gpu.ecc_uncorrectable")


TABLE = """
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 570.1                 Driver Version: 570.1          CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   34C    P0             65W /  400W |   40536MiB /  81920MiB |     87%      Default |
+-----------------------------------------+------------------------+----------------------+
|    0   N/A  N/A           52411      C   /usr/bin/python                       40526MiB |
"""


def test_the_plain_table(tmp_path: Path) -> None:
    seen = look(gpu_status, tmp_path, smi_txt=TABLE)
    assert seen.one("gpu.name") == "NVIDIA A100-SXM4-80GB" and seen.one("gpu.memory_used") == 40536 << 20
    assert seen.one("gpu.process") == "52411 /usr/bin/python 40526 MiB" and seen.one("gpu.utilization") == 87.0


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("gpu.missing", "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error"),
        ("gpu.missing", "No devices were found"),
        ("gpu.driver_mismatch", "Failed to initialize NVML: Driver/library version mismatch"),
        ("gpu.driver_missing", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."),
    ],
)
def test_a_broken_nvidia_smi(key: str, text: str, tmp_path: Path) -> None:
    assert look(gpu_status, tmp_path, smi_txt=f"$ nvidia-smi\n{text}\n").values(key)


def test_link_counters(tmp_path: Path) -> None:
    text = "$ nvidia-smi nvlink -e\nGPU 0: NVIDIA H100\n\t Link 0: Replay Errors: 0\n\t Link 0: CRC Errors: 7\n"
    assert look(gpu_status, tmp_path, nvlink_txt=text).values("gpu.nvlink_errors") == ["CRC 7"]


def test_full_use_at_flat_power(tmp_path: Path) -> None:
    poll = "# utilization.gpu, power.draw\n" + "".join(
        f"task{i}  100 %  {240 + i} / {250 + i} W   1950 MHz\n" for i in range(3)
    )
    assert look(gpu_status, tmp_path, poll_txt=poll).values("gpu.busy_no_progress")
    swing = "# utilization.gpu, power.draw\n" + "".join(f"task{i}  100 %  {150 + 200 * i} / 250 W\n" for i in range(3))
    assert not look(gpu_status, tmp_path, poll_txt=swing).values("gpu.busy_no_progress")


IDLE = (
    "|   0  Tesla P100-SXM2...  Off  | 00000000:05:00.0 Off |                    0 |\n"
    "| N/A   36C    P0    41W / 300W |  12799MiB / 16280MiB |     {use}%      Default |\n"
    "| Processes:                                                       GPU Memory |\n"
    "|  GPU       PID   Type   Process name                             Usage      |\n{rows}"
)


@pytest.mark.parametrize(
    ("use", "rows", "held"),
    [
        (0, "", [12799 << 20]),
        (0, "|  No running processes found                                                 |\n", [12799 << 20]),
        (97, "", []),  # within the container of a run that goes on
        (0, "|    0      4711      C   python                                     12789MiB |\n", []),
    ],
)
def test_memory_that_an_idle_card_holds_for_nobody(use: int, rows: str, held: list[int], tmp_path: Path) -> None:
    seen = look(gpu_status, tmp_path, nvidia_smi_txt="$ nvidia-smi\n" + IDLE.format(use=use, rows=rows))
    assert seen.values("gpu.memory_unowned") == held


def test_a_training_log_is_no_capture(tmp_path: Path) -> None:
    seen = look(gpu_status, tmp_path, train_log="step 1 loss 2 gpu 95% 300 W\nname, value\n")
    assert seen.result.outcome == "not_applicable"


XML = (Path(__file__).parent / "machine" / "smi.xml").read_text()


@pytest.mark.parametrize("name", ["nvidia_smi_xml", "gpus_xml", "out_txt"])
def test_xml(name: str, tmp_path: Path) -> None:
    seen = look(gpu_status, tmp_path, **{name: "$ nvidia-smi -q -x\n" + XML if name == "out_txt" else XML})
    assert (
        seen.one("gpu.count") == 2
        and seen.values("gpu.ecc_uncorrectable") == [4]
        and seen.one("gpu.ecc_lifetime") == 11
    )
    assert set(seen.values("gpu.throttle")) == {"hw_slowdown", "hw_thermal_slowdown"}
    assert seen.one("gpu.recovery_action") == "Drain and Reset" and seen.one("gpu.pcie_width_low") == 8
    assert seen.one("gpu.memory_used") == 61004 << 20 and seen.one("gpu.process") == "52411 python3 & co 60400 MiB"
    assert seen.lines("gpu.process") == ["\t\t\t\t<pid>52411</pid>"] and "4<" in seen.lines("gpu.ecc_uncorrectable")[0]
    assert not seen.values("gpu.health_clean") and not seen.values("gpu.memory_unowned")


def test_a_cut_xml_is_told(tmp_path: Path) -> None:
    (tmp_path / "smi.xml").write_text(XML[: XML.index("<remapped_row_unc>1")])
    ws = Workspace([tmp_path])
    assert {e.key for e in gpu_status(ws).evidence} >= {"gpu.name", "gpu.ecc_uncorrectable"}
    assert any("broken XML" in why for _, why in ws.skipped)


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha">' + "".join(
        f'<!ENTITY {chr(98 + i)} "{("&" + chr(97 + i) + ";") * 10}">' for i in range(12)
    )
    (tmp_path / "smi.xml").write_text(
        f"<?xml version='1.0'?>\n{bomb}]>\n<nvidia_smi_log><gpu>&m;</gpu></nvidia_smi_log>\n"
    )
    ws = Workspace([tmp_path])
    assert gpu_status(ws).outcome == "not_applicable"
    assert any("entities" in why for _, why in ws.skipped)


def test_compute_apps(tmp_path: Path) -> None:
    text = (
        "$ nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader\n"
        "4711, /usr/bin/python3, 30512 MiB\n4712, /opt/vllm/bin/python, 40960 MiB\n$\n"
        "pid, process_name, used_gpu_memory [MiB]\n99, jupyter, 812 MiB\n"
    )
    seen = look(gpu_status, tmp_path, apps_txt=text)
    assert seen.values("gpu.process") == [
        "4711 /usr/bin/python3 30512 MiB", "4712 /opt/vllm/bin/python 40960 MiB", "99 jupyter 812 MiB",
    ]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(XML)), st.binary(max_size=12))
def test_damaged_xml(at: int, junk: bytes) -> None:
    data = XML.encode()
    data = data[:at] + junk + data[at + len(junk) :]
    smi.read([Line(i + 1, 0, d) for i, d in enumerate(data.split(b"\n"))])


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.text(max_size=80) | st.sampled_from([QUERY.strip(), *SECTIONS.splitlines(), *TABLE.splitlines()]),
        max_size=25,
    )
)
def test_any_mixture_of_lines(texts: list[str]) -> None:
    lines = [Line(i + 1, 0, t.encode()) for i, t in enumerate(texts)]
    for r in smi.readings(lines):
        assert r.line in lines
        _ = (r.number, r.active)
    smi.polls(lines)


def test_a_clock_is_held_against_the_use_of_its_own_sample(tmp_path: Path) -> None:
    head = "index, name, utilization.gpu [%], clocks.current.sm [MHz], clocks.max.sm [MHz]\n"
    rows = ["0, NVIDIA H100, 98 %, 600 MHz, 1980 MHz", "0, NVIDIA H100, 0 %, 345 MHz, 1980 MHz"]
    assert look(gpu_status, tmp_path, gpu_csv=head + "\n".join(rows) + "\n").values("gpu.clock_low") == [600]
    many = look(gpu_status, tmp_path, gpu_csv=head + (rows[0] + "\n") * 40)
    assert 1 <= len(many.values("gpu.clock_low")) <= 6
