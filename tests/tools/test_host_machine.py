"""The host as it is: full disks, limits, control groups, kernel kills and leftovers, made for real where allowed."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from captured import told
from traindoctor.agent.core.shell import Recorded, Shell
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.machine import kernel_log
from traindoctor.agent.reading.machine.host_state import paths
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.machine.gpu_tools import xid_errors
from traindoctor.agent.tools.machine.host_tools import host_health

GROUPS = Path("/sys/fs/cgroup/memory")
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
TIMES = ["-I", "-m", "traindoctor.agent.jobs.probes.times"]
PROBE = ["-I", "-m", "traindoctor.agent.jobs.probes.host"]


def look(*folders: Path, pids: tuple[int, ...] = (), shell: Shell | None = None) -> ToolResult:
    result = host_health(Workspace(list(folders), live=True, pids=pids, may_be_empty=True, shell=shell))
    assert all(host_health.allows(e.key) for e in result.evidence)
    return result


def values(result: ToolResult, key: str) -> list[object]:
    return [e.value for e in result.evidence if e.key == key]


@contextlib.contextmanager
def child(code: str, *args: str, before: str = "") -> Iterator[subprocess.Popen[str]]:
    """A Python process that has printed a line and sleeps on."""
    argv = [sys.executable, "-c", code + "\nprint('ready', flush=True)\nimport time; time.sleep(60)", *args]
    if before:
        argv = ["bash", "-c", f'{before}; exec "$@"', "-", *argv]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_this_machine(tmp_path: Path) -> None:
    result = look(tmp_path)
    assert told(result, "host.memory_total_bytes") and told(result, "host.cores")
    assert told(result, "host.disk_free_bytes")
    left = next(e for e in result.evidence if e.key == "host.memory_available_bytes")
    assert left.kind == "command" and left.argv and json.loads(left.text)["MemAvailable"] == left.value


@root_only
def test_a_full_disk(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M,nr_inodes=12", "none", tmp_path], check=False).returncode:
        pytest.skip("may not mount")
    try:
        with contextlib.suppress(OSError):
            (tmp_path / "weights").write_bytes(b"x" * (2 << 20))
        with contextlib.suppress(OSError):
            for i in range(20):
                (tmp_path / f"f{i}").touch()
        result = look(tmp_path)
        assert values(result, "host.disk_full") == [f"{tmp_path} 100%"], result.text
        assert values(result, "host.inodes_full") == [f"{tmp_path} 100%"] and result.outcome == "finding"
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_the_limits_of_a_process(tmp_path: Path) -> None:
    with child("", before="ulimit -n 300; ulimit -l 64") as process:
        result = look(tmp_path, pids=(process.pid,))
    assert values(result, "host.nofile_limit") == [300] and values(result, "host.nofile_low") == [300]
    assert values(result, "host.memlock_limit") == [64]


def test_a_child_that_nobody_waited_for(tmp_path: Path) -> None:
    with child("import os\nif not os.fork(): os._exit(0)"):
        assert any(
            re.search(r"^\d+ python\S*, child of \d+ python", str(v)) for v in values(look(tmp_path), "host.zombie")
        )


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no /dev/shm")
def test_shared_memory_that_was_left(tmp_path: Path) -> None:
    left = Path("/dev/shm/doctor_test_left")
    left.write_bytes(b"x" * (70 << 20))
    try:
        seen = look(tmp_path)
        assert any(int(v) >= 70 << 20 for v in told(seen, "host.shm_left_bytes"))
        owner = pwd.getpwuid(os.getuid()).pw_name
        assert f"{left}, {70 << 20} bytes of {owner}" in values(seen, "host.shm_leftover")
        with child(
            "import mmap, sys; f = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0); f.close()", str(left)
        ):
            used = values(look(tmp_path), "host.shm_leftover")
        assert not any("doctor_test_left" in str(v) for v in used)
    finally:
        left.unlink()


@root_only
def test_a_kill_for_memory(tmp_path: Path) -> None:
    group = GROUPS / "doctor_test"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(60 << 20))
    except OSError:
        pytest.skip("no memory control groups of version 1 that may be made")
    try:
        enter = f"echo $$ > {group}/cgroup.procs"
        died = subprocess.Popen(
            ["bash", "-c", f'{enter}; exec "$@"', "-", sys.executable, "-c", "x = bytearray(300 << 20)"]
        )
        assert died.wait(60) == -9
        with child("", before=enter) as process:
            result = look(tmp_path, pids=(process.pid,))
        assert told(result, "host.memory_limit_bytes")[0] == str(60 << 20)
        assert values(result, "host.group_oom_kills") == [1] and told(result, "host.memory_peak_share")[0] == "1.0"
        killed = [str(v) for v in values(result, "host.oom_kill")]
        assert any(f"process {died.pid} " in v for v in killed) or "kernel log could not be read" in result.summary
    finally:
        group.rmdir()


def recorded(folder: Path, *answers: dict[str, object]) -> Recorded:
    path = folder.parent / "shell.json"
    path.write_text(json.dumps(list(answers)))
    return Recorded(path)


def test_a_file_system_that_never_answers(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    said = '{"fact": "memory", "MemTotal": 100, "MemAvailable": 50}\n{"asking": "disk", "path": "/mnt/dead"}\n'
    argv = [sys.executable, *PROBE, *paths(Workspace([run], may_be_empty=True))]
    result = look(
        run, shell=recorded(run, {"argv": argv, "code": None, "stdout": said, "stderr": "no answer within 10 s"})
    )
    assert told(result, "host.no_answer") == ["/mnt/dead"] and result.outcome == "finding"


def test_no_permission_for_the_kernel_log(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    refused = {
        "argv": ["dmesg", "--time-format", "iso"], "code": 1, "stdout": "",
        "stderr": "dmesg: read kernel buffer failed: Operation not permitted",
    }  # fmt: skip
    result = xid_errors(Workspace([run], live=True, may_be_empty=True, shell=recorded(run, refused)))
    assert result.outcome == "failed" and "journalctl: not recorded; dmesg: no permission" in result.summary


KERNEL = """2026-11-18T03:00:00,000000+00:00 NVRM: Xid (PCI:0000:07:00): 31, pid=9, name=python, MMU Fault
2026-11-20T10:00:00,000000+00:00 NVRM: The NVIDIA GPU 0000:18:00.0
2026-11-20T10:00:00,100000+00:00 NVRM: has fallen off the bus and is not responding to commands.
2026-11-20T10:00:01,000000+00:00 NVRM: Xid (PCI:0000:18:00): 45, pid=77, name=python, Ch 00000010
2026-11-20T10:00:02,000000+00:00 NVRM: Xid (PCI:0000:18:00): 79, pid=77, name=python, GPU has fallen off the bus.
2026-11-20T10:00:03,000000+00:00 nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
2026-11-20T10:00:04,000000+00:00 Out of memory: Killed process 4242 (python) total-vm:1kB
"""


NOON = 1795176000.0  # 2026-11-20 12:00


@pytest.mark.parametrize(
    ("times", "key"),
    [
        ({"now": NOON, "first": NOON - 9000, "last": NOON - 7000}, "host.oom_kill"),
        ({"now": NOON, "first": NOON - 3000, "last": NOON - 100}, "host.oom_kill_elsewhere"),  # the run came later
        ({"now": NOON, "first": None, "last": None}, "host.oom_kill_elsewhere"),
    ],
)
def test_the_kernel_log_of_this_machine(times: dict[str, float], key: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shell = recorded(
        run,
        {"argv": [sys.executable, *TIMES], "code": 0, "stdout": json.dumps(times)},
        {"argv": ["dmesg", "--time-format", "iso"], "code": 0, "stdout": KERNEL},
    )
    ws = Workspace([run], live=True, may_be_empty=True, shell=shell)
    result = xid_errors(ws)
    assert values(result, "gpu.xid") == [45, 79] and values(result, "gpu.xid_culprit") == [
        79
    ]  # the old 31 is not counted
    assert values(result, "gpu.fell_off_bus")[:2] == ["0000:18:00.0", "0000:18:00.0"]
    assert values(result, "gpu.sxid_fatal") == [20034] and "power" in told(result, "gpu.xid_investigate")[0]
    assert all(e.argv == ["dmesg", "--time-format", "iso"] for e in result.evidence)
    health = host_health(ws)
    assert told(health, key) == ["Out of memory: Killed process 4242 (python)"]
    assert values(health, "host.oom_kill") == told(health, "host.oom_kill")


def test_the_journal_with_an_earlier_boot(tmp_path: Path) -> None:
    lines = (
        "2026-11-20T10:00:02+0000 n7 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=77, name=python, GPU has fallen off the bus.\n"
        "-- Boot 5a1c7d --\n2026-11-20T10:09:00+0000 n7 kernel: Linux version 6.1.0\n"
    )
    run = tmp_path / "run"
    run.mkdir()
    shell = recorded(
        run,
        {"argv": kernel_log.ASKED[0], "code": 0, "stdout": lines},
        {
            "argv": [sys.executable, *TIMES],
            "code": 0,
            "stdout": json.dumps({"now": NOON, "first": NOON - 9000, "last": NOON - 7200}),
        },
    )
    ws = Workspace([run], live=True, may_be_empty=True, shell=shell)
    result = xid_errors(ws)
    assert values(host_health(ws), "host.reboot") == ["-- Boot 5a1c7d --", "kernel: Linux version 6"]
    assert values(result, "gpu.xid") == [79] and values(result, "gpu.fell_off_bus") == ["PCI:0000:18:00"]


def test_an_empty_journal_is_no_answer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shell = recorded(run, {"argv": kernel_log.ASKED[0], "code": 0, "stdout": "-- No entries --\n"})
    result = xid_errors(Workspace([run], live=True, may_be_empty=True, shell=shell))
    assert result.outcome == "failed" and "dmesg: not recorded" in result.summary
