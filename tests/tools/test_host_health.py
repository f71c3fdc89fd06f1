"""Hosts and schedulers: kernel lines, disks, limits, Slurm, links, restarted services."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traindoctor.agent.reading.machine import host_state as hl
from traindoctor.agent.tools.machine.host_tools import host_health

from tests.tools.captured import look


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("oom_kill", "[ 99.1] Out of memory: Killed process 4242 (python) total-vm:1kB"),
        ("cgroup_oom", "[ 99.1] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x"),
        ("disk_full", "OSError: [Errno 28] No space left on device: '/ckpt/step_10'"),
        ("quota", "OSError: [Errno 122] Disk quota exceeded"),
        ("too_many_files", "RuntimeError: received 0 items of ancdata"),
        ("process_limit", "RuntimeError: can't start new thread"),
        ("time_limit", "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO TIME LIMIT ***"),
        ("preempted", "slurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-01T10:00:00 DUE TO PREEMPTION ***"),
        ("node_failure", "srun: error: Node failure on gpu-12"),
        ("slurm_exit", "srun: error: n3: task 3: Exited with exit code 1"),
        ("evicted", "Message:  The node was low on resource: memory. Threshold quantity: 100Mi, available: 40Mi."),
        ("hung_task", "INFO: task python:812 blocked for more than 120 seconds."),
        ("mce", "[ 9.9] mce: [Hardware Error]: Machine check events logged"),
        ("pcie_error", "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:01:00.0"),
        ("fs_error", "LustreError: 11-0: scratch-OST0003 operation ost_write failed"),
        ("fs_error", "nfs: server filer not responding, still trying"),
        ("ib_down", "\t\tPhysical state: Polling"),
        ("ib_down", "\tstate:\t\tPORT_DOWN (1)"),
        (
            "port_in_use",
            "RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        ),
    ],
)
def test_single_lines(key: str, text: str, tmp_path: Path) -> None:
    assert look(host_health, tmp_path, capture_log=f"start\n{text}\n").values(f"host.{key}")


def test_the_port_in_use_is_named(tmp_path: Path) -> None:
    text = "socket.cpp:1: The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use).\n"
    assert look(host_health, tmp_path, run_log=text).one("host.port_in_use") == "29500"


def test_df_with_blocks_and_inodes(tmp_path: Path) -> None:
    text = (
        "$ df -h\nFilesystem      Size  Used Avail Use% Mounted on\n/dev/nvme0n1p2  1.8T  1.8T     0 100% /\n"
        "/dev/loop3       64M   64M     0 100% /snap/core20/1\nshm              64M     0   64M   0% /dev/shm\n"
        "$ df -i\nFilesystem       Inodes    IUsed IFree IUse% Mounted on\n/dev/sdb1      1000000  1000000     0  100% /data\n"
    )
    seen = look(host_health, tmp_path, df_txt=text)
    assert seen.values("host.disk_full") == ["/ 100%"] and seen.one("host.shm_bytes") == 64 << 20
    assert seen.values("host.inodes_full") == ["/data 100%"]


def test_limits_and_memory(tmp_path: Path) -> None:
    text = (
        "$ ulimit -n\n1024\n$ ulimit -a\nopen files                          (-n) 4096\nmax locked memory       (kbytes, -l) 64\n"
        "$ free -h\n               total        used        free      shared  buff/cache   available\n"
        "Mem:            31Gi        29Gi       400Mi       1.0Gi       1.5Gi       600Mi\n"
    )
    seen = look(host_health, tmp_path, host_txt=text)
    assert set(seen.values("host.nofile_limit")) == {1024, 4096} and seen.one("host.memlock_limit") == 64
    assert (
        seen.told("host.memory_total_bytes") == [str(31 << 30)] and seen.one("host.memory_available_bytes") == 600 << 20
    )
    assert seen.result.outcome == "clean"


def test_sacct(tmp_path: Path) -> None:
    text = (
        "$ sacct -j 77 -P -o JobID,State,ExitCode\nJobID|State|ExitCode\n77|OUT_OF_MEMORY|0:125\n77.batch|OUT_OF_MEMORY|0:125\n"
        "78|COMPLETED|0:0\n79|NODE_FAIL|1:0\n"
    )
    seen = look(host_health, tmp_path, sacct_txt=text)
    assert {"OUT_OF_MEMORY", "NODE_FAIL"} <= set(seen.values("host.slurm_state"))
    assert "0:125" in seen.values("host.slurm_exit") and seen.values("host.node_failure")


JOURNAL = (
    "Oct 18 08:02:11 n systemd[1]: Starting NVIDIA fabric manager service...\n"
    "Oct 18 08:02:31 n systemd[1]: Started NVIDIA fabric manager service.\n"
)


def test_a_service_started_at_boot_was_not_restarted(tmp_path: Path) -> None:
    assert not look(host_health, tmp_path, journal_txt=JOURNAL).values("host.service_restart")


def test_a_restarted_service_cites_stop_and_start(tmp_path: Path) -> None:
    stop = JOURNAL.replace("Starting", "Stopping").replace("Started", "Stopped").replace("08:02", "16:40")
    seen = look(host_health, tmp_path, journal_txt=JOURNAL + stop + JOURNAL.replace("08:02", "16:44"))
    lines = seen.lines("host.service_restart")
    assert len(lines) == 2 and "Stopping" in lines[0] and "16:44:11" in lines[1]


def test_counters_that_are_zero_say_nothing(tmp_path: Path) -> None:
    seen = look(host_health, tmp_path, ib_txt="symbol_error: 0\nlink_downed: 3\n")
    assert seen.values("host.ib_counters") == ["link_downed 3"]


@pytest.mark.parametrize(
    "text",
    [
        "Starting job on 4 nodes",
        "server started on 10.0.0.1:8000",
        "state: running",
        "step 5 | loss 1.0 | 100% | /data",
        "evaluated",
    ],
)
def test_usual_lines_state_nothing(text: str) -> None:
    assert not list(hl.facts_of(text))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_line(text: str) -> None:
    list(hl.facts_of(text))
    list(hl.disk_facts(text, "size"))
    list(hl.memory_facts(text))
