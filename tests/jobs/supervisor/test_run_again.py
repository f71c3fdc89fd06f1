"""`doctor run` to the end of a story: a restart from its checkpoint, a hang that is diagnosed and ended, people told."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

PY = sys.executable
PROGRAM = "from traindoctor.agent.doors.cli import main; raise SystemExit(main())"
SOON = f"import traindoctor.agent.jobs.supervisor.supervised_job as job; job.PAUSES = (1.0,); {PROGRAM}"  # starts again
SECONDS = 180.0

TRAIN = """
import json, os, struct, sys, time
from pathlib import Path
saved = sys.argv[sys.argv.index("--resume") + 1] if "--resume" in sys.argv else ""
start = int(saved.rpartition("-")[2]) if saved else 0
print("attempt", os.environ.get("DOCTOR_ATTEMPT", "1"), "from", saved or "nothing", flush=True)
for step in range(start + 1, start + 13):
    print(f"step {step} loss {3 / (step + 1):.4f}", flush=True)
    if step % 10 == 0:
        place = Path(f"out/checkpoint-{step}")
        place.mkdir(parents=True, exist_ok=True)
        tensor = {"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
        head = json.dumps(tensor).encode()
        data = struct.pack("<Q", len(head)) + head + struct.pack("<2f", 0.5, step)
        (place / "model.safetensors").write_bytes(data)
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
if saved:
    sys.exit(0)
raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
"""


def doctor(*arguments: str, cwd: Path, program: str = PROGRAM, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PY, "-c", program, "run", "--run", "run", *arguments], cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, check=False,
        timeout=SECONDS, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_job_starts_again_where_its_report_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    command = [PY, "train.py", "--output_dir", "out"]
    done = doctor("--restart", "2", "--resume", "--resume {checkpoint}", "--", *command, cwd=tmp_path, program=SOON)
    assert done.returncode == 0, done.stderr
    assert f"attempt 2 from {tmp_path}/out/checkpoint-10\n" in done.stdout
    said = done.stderr.splitlines()
    assert [line for line in said if "[hw.ecc_uncorrectable]" in line], done.stderr
    [again] = [line for line in said if "will be started again" in line]
    assert "checkpoint-10" in again and "in 1 s" in again
    records = [json.loads((tmp_path / f"run/doctor-run/try_{n}/record.json").read_text()) for n in (1, 2)]
    assert [r["exit"]["code"] for r in records] == [1, 0]
    assert records[1]["command"] == [*command, "--resume", f"{tmp_path}/out/checkpoint-10"]
    assert (tmp_path / "run/doctor-run/try_1/command.sh").read_text() == shlex.join(command) + "\n"


def test_a_place_for_a_checkpoint_is_empty_at_first(tmp_path: Path) -> None:
    done = doctor("--restart", "1", "--", "echo", "--load={checkpoint}", cwd=tmp_path)
    assert done.stdout == "--load=\n" and "{checkpoint} is empty at the first start" in done.stderr
    assert doctor("--", "echo", "{checkpoint}", cwd=tmp_path).stdout == "{checkpoint}\n"


def test_a_hang_is_diagnosed_before_its_job_is_ended(tmp_path: Path) -> None:
    code = (
        "import threading, time\n"
        "for i in range(15): print('step', i, 'loss 1.0', flush=True); time.sleep(0.1)\n"
        "lock = threading.Lock(); lock.acquire(); lock.acquire()"
    )
    (tmp_path / "train.py").write_text(code, encoding="utf-8")
    done = doctor("--hang-after", "2", "--on-hang", "kill", "--", PY, "train.py", cwd=tmp_path)
    assert done.returncode == 128 + 15
    said = done.stderr.splitlines()
    order = [next(n for n, line in enumerate(said) if word in line)
             for word in ("seems to hang", "it stands still: a process in <module> (train.py:3)", "report:",
                          "asked to end (--on-hang kill)")]  # fmt: skip
    assert order == sorted(order)
    assert sum("report:" in line for line in said) == 1
    record = json.loads((tmp_path / "run/doctor-run/try_1/record.json").read_text(encoding="utf-8"))
    assert record["told_to_end"][0]["by"] == "doctor (--on-hang kill)" and record["hang"]["went_on"] is False


def test_a_target_that_cannot_be_is_told_before_the_job(tmp_path: Path) -> None:
    refused = doctor("--notify", "nowhere://x", "--", "touch", "ran", cwd=tmp_path)
    assert (refused.returncode, (tmp_path / "ran").exists()) == (2, False)
    assert refused.stderr.startswith("doctor: --notify: ") and refused.stderr.count("\n") == 1


def test_what_the_jobs_python_finds_is_not_for_ours(tmp_path: Path) -> None:
    """Modules in PYTHONPATH that shadow ours, and what is loaded into every process, do not reach what captures."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "concurrent.py").write_text("raise RuntimeError('not for you')", encoding="utf-8")
    place = tmp_path / "run/doctor-run/try_1/end"
    done = doctor("--no-triage", "--", "sh", "-c", "exit 3", cwd=tmp_path, PYTHONPATH=str(folder))
    assert done.returncode == 3
    assert (place / "free.txt").exists()
