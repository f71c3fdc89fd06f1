"""From a run on a sick machine to the right cause: what the machine says decides, live or as recorded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.core.report import Report
from traindoctor.agent.core.shell import Completed, Live, Recorded, Shell
from traindoctor.agent.reading.machine import gpu_state
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.machine.job_tools import FIELDS

MACHINE = Path(__file__).parent.parent / "tools" / "machine"


class QuietKernel:
    """This machine, but for its kernel log: other tests write into that one."""

    def run(self, argv: list[str], timeout: float = 10.0, env: dict[str, str] | None = None, cwd: Path | None = None) -> Completed:
        if argv[0] in ("dmesg", "journalctl"):
            return Completed(tuple(argv), 0, "2026-01-01T00:00:00,000000+00:00 Linux version 6.1\n")
        return Live().run(argv, timeout, env, cwd)


def report(run: Path, question: str, state: Path, shell: Shell | None = None) -> Report:
    return list(diagnose(Workspace([run], live=True, shell=shell), question, state=state))[-1].report  # type: ignore[attr-defined]


def cause(found: Report) -> str | None:
    return found.root_cause.id if found.root_cause else None


def answers(folder: Path, *entries: dict[str, object]) -> Recorded:
    (folder / "shell.json").write_text(json.dumps(list(entries)))
    return Recorded(folder / "shell.json")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_full_disk(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", run], check=False).returncode:
        pytest.skip("may not mount")
    try:
        (run / "train.log").write_text("loading the dataset\nTraceback (most recent call last):\n"
            '  File "/x/site-packages/datasets/arrow_writer.py", line 5, in write\nOSError: [Errno 28] No space left on device\n')  # fmt: skip
        with pytest.raises(OSError, match="No space left"):
            (run / "cache.arrow").write_bytes(b"x" * (2 << 20))
        found = report(run, "why did it die?", tmp_path, QuietKernel())
    finally:
        subprocess.run(["umount", "-l", run], check=True)
    assert cause(found) == "env.disk_full" and found.status in {"confirmed", "likely"}
    assert any(e.key == "host.disk_full" and e.kind == "command" for e in found.evidence)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a control group")
def test_a_real_kill_for_memory(tmp_path: Path) -> None:
    run, group = tmp_path / "run", Path("/sys/fs/cgroup/memory/doctor_test_session")
    run.mkdir()
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(60 << 20))
    except OSError:
        pytest.skip("no memory control groups of version 1 that may be made")
    job = "import time\nfor i in range(40): print('step', i, 'loss', 2 - i / 100, flush=True)\nkept = bytearray(300 << 20)\n"
    try:
        enter = f"echo $$ > {group}/cgroup.procs; {sys.executable} -c \"$1\" > {run}/train.log 2>&1"
        subprocess.run(["bash", "-c", enter, "-", job], check=False)
    finally:
        group.rmdir()
    if subprocess.run(["dmesg"], capture_output=True, check=False).returncode:
        pytest.skip("may not read the kernel log")
    found = report(run, "the process vanished without an error", tmp_path)
    assert cause(found) == "memory.host_oom", [h.id for h in found.differential]
    assert any(e.key == "host.oom_kill" and e.argv and e.argv[0] in ("dmesg", "journalctl") for e in found.evidence)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler to build a driver's stand-in with")
@pytest.mark.parametrize(("mode", "expected"), [("hang", "hw.gsp_timeout"), ("lost", "hw.gpu_fell_off_bus")])
def test_a_sick_driver(mode: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "rank3.log").write_text("step 10 loss 2.1\nstep 11 loss 2.0\nRuntimeError: CUDA error: unknown error\n")
    library = tmp_path / "lib"
    library.mkdir()
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library / "libnvidia-ml.so.1", MACHINE / "fake_nvml.c"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("FAKE_NVML", mode)
    monkeypatch.setattr(gpu_state, "SECONDS", 2.0)
    found = report(run, "rank 3 died with an unknown CUDA error", tmp_path, QuietKernel())
    assert cause(found) == expected, [h.id for h in found.differential]


@pytest.mark.parametrize(
    ("job", "expected", "key"),
    [
        ("4", "env.watchdog_kill", "slurm.time_limit"), ("7", "dist.node_failure", "slurm.node_fail"),
        ("3", "memory.host_oom", "slurm.out_of_memory"),
    ],
)  # fmt: skip
def test_what_only_slurm_knows(job: str, expected: str, key: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / f"slurm-{job}.out").write_text("step 1 loss 2.1\nstep 2 loss 2.0\nstep 3 loss 1.9\n")
    shell = answers(
        tmp_path,
        {"argv": ["sacct", "-P", "-D", "-j", job, "-o", FIELDS], "code": 0, "stdout": (MACHINE / "sacct.txt").read_text()},
    )
    found = report(run, "the job just stopped", tmp_path, shell)
    assert cause(found) == expected, [h.id for h in found.differential]
    assert any(e.key == key for e in found.evidence)


def test_a_healthy_run_on_a_healthy_machine(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    steps = "".join(f"step {i} loss {3.0 / (1 + i / 20):.4f} lr 1e-4\n" for i in range(1, 200))
    (run / "train.log").write_text(steps + "Training completed\n")
    found = report(run, "is it healthy?", tmp_path, QuietKernel())
    assert found.status in {"healthy", "insufficient_evidence"}, cause(found)
