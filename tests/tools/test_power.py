"""Cards that may draw more than the supply carries, and starts of a machine without a shutdown before."""

from __future__ import annotations

from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import playbooks
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine import gpu_tools
from traindoctor.agent.tools.machine.gpu_tools import power_budget

from tests.tools.captured import look

SUPPLY = "System Power Supply\n\tLocation: PSU{n}\n\tMax Power Capacity: {watts} W\n\tStatus: Present, OK\n"
QUERY = "$ nvidia-smi --query-gpu=index,power.limit --format=csv\nindex, power.limit [W]\n0, 350.00 W\n1, 350.00 W\n"


def test_cards_beyond_the_supply(tmp_path: Path) -> None:
    seen = look(power_budget, tmp_path, dmidecode_txt=SUPPLY.format(n=1, watts=750), power_txt=QUERY)
    assert seen.one("host.power_short") == pytest.approx(0.93)
    assert [t.strip() for t in seen.lines("host.power_short")] == [
        "Max Power Capacity: 750 W",
        "0, 350.00 W",
        "1, 350.00 W",
    ]


def test_supplies_add_up(tmp_path: Path) -> None:
    both = SUPPLY.format(n=1, watts=800) + SUPPLY.format(n=2, watts=800)
    seen = look(power_budget, tmp_path, dmidecode_txt=both, power_txt=QUERY)
    assert not seen.values("host.power_short") and seen.result.outcome == "clean"


def test_unknown_capacity_says_nothing(tmp_path: Path) -> None:
    seen = look(power_budget, tmp_path, dmidecode_txt="\tMax Power Capacity: Unknown\n", power_txt=QUERY)
    assert seen.result.outcome == "not_applicable"


PROGRAMS = (
    "Nov 03 04:10:01 n7 CRON[812]: (root) CMD (run-parts /etc/cron.hourly)\n"
    "Nov 03 04:10:44 n7 sshd[77]: Accepted publickey for u\n"
)
JOURNAL = (
    PROGRAMS
    + "Nov 03 04:11:20 n7 app[9]: step 400 loss 2.1\n{end}{start}\nNov 03 04:15:02 n7 kernel: Command line: ro\n"
)


@pytest.mark.parametrize(
    "start",
    [
        "-- Boot 0d9e2c41f0ab4c1e --",
        "-- Reboot --",
        "Nov 03 04:15:02 n7 kernel: Linux version 6.8.0-45-generic (buildd@lcy02)",
        "[    0.000000] Linux version 5.15.0-1034-aws",
    ],
)
def test_a_start_without_a_shutdown(start: str, tmp_path: Path) -> None:
    seen = look(power_budget, tmp_path, journal_txt=JOURNAL.format(end="", start=start))
    assert seen.lines("host.cut_off") == [start]


@pytest.mark.parametrize(
    "end",
    [
        "Nov 03 04:11:29 n7 systemd[1]: Reached target System Reboot.\n",
        "Nov 03 04:11:29 n7 systemd-logind[812]: Power key pressed short. Powering off...\n",
        "Nov 03 04:11:29 n7 kernel: Kernel panic - not syncing: Fatal exception\n",
    ],
)
def test_an_end_with_a_reason_is_no_cut(end: str, tmp_path: Path) -> None:
    seen = look(power_budget, tmp_path, journal_txt=JOURNAL.format(end=end, start="-- Boot 0d9e2c41f0ab4c1e --"))
    assert not seen.values("host.cut_off")


LAST = (
    "reboot   system boot  5.11.0-40-generi Wed Nov 10 14:21   still running\n"
    "user     :1           :1               Wed Nov 10 12:02 - {end}  (02:19)\n"
)


@pytest.mark.parametrize(("end", "found"), [("crash", 1), ("down ", 0), ("14:21", 0)])
def test_a_session_that_last_calls_crashed(end: str, found: int, tmp_path: Path) -> None:
    assert len(look(power_budget, tmp_path, last_txt=LAST.format(end=end)).values("host.cut_off")) == found


@pytest.mark.parametrize("reads", ["Nov 03 04:{m:02}:20 n7 kernel: eth0: link up\n", "[ {m}.5] eth0: link up\n"])
def test_a_log_of_the_kernel_alone_does_not_show_how_it_ended(reads: str, tmp_path: Path) -> None:
    log = "".join(reads.format(m=m) for m in range(40))
    start = "Nov 03 05:00:02 n7 kernel: [    0.000000] Linux version 6.8.0-45-generic\n"
    seen = look(power_budget, tmp_path, kern_log=log + start)
    assert not seen.values("host.cut_off")


def test_a_start_without_a_shutdown_alone_is_no_cause() -> None:
    playbook = next(p for p in playbooks() if p.cause == "hw.power_thermal")
    assert not any(c.key == "host.cut_off" for c in playbook.any_of)
    assert any(c.key == "host.cut_off" for c in playbook.supports)


def test_the_first_start_of_a_log_follows_nothing(tmp_path: Path) -> None:
    seen = look(power_budget, tmp_path, dmesg_txt="[    0.000000] Linux version 6.8.0\n[    0.1] Command line: ro\n")
    assert seen.result.outcome == "not_applicable"


def test_logs_without_a_word_of_it_are_not_read_by_the_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_tools, "lines", lambda _: pytest.fail("read by the line"))
    seen = look(power_budget, tmp_path, train_log="step 1 loss 2.1 path /sets/a\n" * 90_000)
    assert seen.result.outcome == "not_applicable"


def test_a_log_that_is_too_large_is_told(tmp_path: Path) -> None:
    with (tmp_path / "train.log").open("wb") as log:
        log.write(b"step 1 loss 2.1\n" * 1000)
        log.truncate((64 << 20) + 1)
    result = power_budget(Workspace([tmp_path]))
    assert "1 log(s) over 64 MiB not searched" in result.summary
