"""Xid codes, cards off the bus in all three forms, and kernel logs that hold nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE
from traindoctor.agent.reading.machine import kernel_log as kl
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine.gpu_tools import xid_errors

from tests.tools.captured import look


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (79, "[ 12.3] NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        (31, "kernel: NVRM: Xid (PCI:0000:05:00): 31, pid=9, name=python, Ch 00000008, intr 10000000. MMU Fault"),
        (149, "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x1 0x2)"),
        (
            94,
            "Nov  3 04:11:22 n7 kernel: NVRM: Xid (PCI:0000:5d:00): 94, pid=7, name=python, Contained: CE User Channel",
        ),
        (48, "gpu monitor: Xid 48 on GPU 3"),
    ],
)
def test_codes(code: int, line: str, tmp_path: Path) -> None:
    seen = look(xid_errors, tmp_path, dmesg_txt=f"[ 1.0] NVRM: loading NVIDIA UNIX\n{line}\n")
    assert seen.one("gpu.xid") == code and seen.told("gpu.xid_action")[0].startswith(str(code))


def test_the_culprit_is_not_the_consequence(tmp_path: Path) -> None:
    line = "[ {t}.0] NVRM: Xid (PCI:0000:5d:00): {code}, pid=7\n"
    seen = look(
        xid_errors, tmp_path, dmesg_txt="".join(line.format(t=i, code=c) for i, c in enumerate((45, 45, 48, 63, 154)))
    )
    assert seen.one("gpu.xid_culprit") == 48 and seen.one("gpu.xid_blame") == "hardware"
    assert 154 in seen.values("gpu.xid")


def test_only_consequences_name_no_culprit(tmp_path: Path) -> None:
    seen = look(xid_errors, tmp_path, dmesg_txt="[ 1.0] NVRM: Xid (PCI:0000:5d:00): 45, pid=7\n")
    assert not seen.values("gpu.xid_culprit")


OLD_FORM = (
    "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    "               NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "               NVRM: fallen off the bus and is not responding to commands.\n"
)


@pytest.mark.parametrize("text", [OLD_FORM, "[ 5.0] NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.\n"])
def test_off_the_bus_without_a_code(text: str, tmp_path: Path) -> None:
    seen = look(xid_errors, tmp_path, dmesg_txt="[ 1.0] NVRM: loading\n" + text)
    assert "0000:b3:00.0" in seen.values("gpu.fell_off_bus") and seen.result.outcome == "finding"
    assert any("0000:b3:00.0" in line for line in seen.lines("gpu.fell_off_bus"))


def test_looked_and_nothing_there(tmp_path: Path) -> None:
    seen = look(xid_errors, tmp_path, health_txt="$ dmesg -T | grep -i xid\n$\n")
    assert seen.result.outcome == "clean" and seen.one("gpu.none_found") is True
    assert [e.kind for e in seen.of("gpu.xid")] == ["absent"] and seen.of("gpu.xid")[0].searched == ["health.txt"]


def test_no_kernel_log(tmp_path: Path) -> None:
    seen = look(xid_errors, tmp_path, train_log="step 1 loss 1 maxid 12\nloading the taxid 31 table\n")
    assert seen.result.outcome == "not_applicable"


def test_switch_errors_are_not_xids(tmp_path: Path) -> None:
    seen = look(
        xid_errors, tmp_path, dmesg_txt="[ 2.1] nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 30\n"
    )
    assert seen.one("gpu.sxid") == 12028 and not seen.values("gpu.xid")


def test_the_catalogue_is_whole() -> None:
    known = kl.catalogue()
    assert {13, 31, 43, 45, 48, 63, 64, 74, 79, 94, 95, 119, 120, 144, 149, 154} <= set(known)
    families = yaml.safe_load((KNOWLEDGE / "causes.yaml").read_text())
    public = {cause for family in families.values() for cause in family}
    for code, entry in known.items():
        assert (
            entry["name"] and entry["action"] and entry["blame"] in {"hardware", "application", "software", "none"}
        ), code
        assert entry.get("cause") is None or entry["cause"] in public, code


@pytest.mark.parametrize(
    ("codes", "blamed"),
    [
        ([31, 43], 31), ([45, 31, 79], 79), ([31, 92], 31), ([48, 63, 45], 48), ([45, 94, 63, 154], 94), ([63, 45], 63),
        ([154, 45], None), ([119, 31], 119), ([13, 119], 13), ([999, 45], 999),
    ],
)  # fmt: skip
def test_which_of_many_is_to_blame(codes: list[int], blamed: int | None) -> None:
    found = kl.culprit([kl.Xid(c, "", kl.catalogue().get(c)) for c in codes])
    assert (found.code if found else None) == blamed


def test_an_nvlink_event_that_the_driver_got_over_blames_nobody(tmp_path: Path) -> None:
    mild = "kernel: NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1)\n"
    seen = look(xid_errors, tmp_path, dmesg_txt=mild)
    assert seen.values("gpu.xid_nonfatal") == [145] and not seen.values("gpu.xid_culprit")
    fatal = "kernel: NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x00000000)\n"
    seen = look(xid_errors, tmp_path, dmesg_txt=mild + fatal)
    assert seen.one("gpu.xid_culprit") == 149 and seen.values("gpu.xid_nonfatal") == [145]


@pytest.mark.parametrize(
    ("lead", "host"),
    [("Nov  3 04:11:22 n7 ", "n7"), ("2026-11-20T10:00:03+0000 gpu-n12 ", "gpu-n12"), ("[12345.678901] ", None),
     ("Nov  3 04:11:22 ", None), ("", None)],
)  # fmt: skip
def test_a_kernel_line_names_its_host_in_every_form_of_time(tmp_path: Path, lead: str, host: str | None) -> None:
    line = f"{lead}kernel: NVRM: Xid (PCI:0000:ab:00): 79, pid=7, name=python, GPU has fallen off the bus."
    (tmp_path / "kern.log").write_text(line + "\n")
    found = [e for e in xid_errors(Workspace([tmp_path], live=False)).evidence if e.key == "gpu.xid"]
    assert [e.host for e in found] == [host]
