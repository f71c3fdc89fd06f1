"""Where `doctor run` keeps what it keeps: full disks, odd names, several supervisors, variables it sets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from traindoctor.agent.jobs.supervisor.relay import CopyOfOutput
from traindoctor.agent.jobs.supervisor.run_folder import name_of
from traindoctor.agent.jobs.supervisor.supervised_job import Surroundings, additions, launcher

PY = sys.executable
DOCTOR = [PY, "-c", "from traindoctor.agent.doors.cli import main; raise SystemExit(main())", "run", "--no-triage"]
SECONDS = 60.0


def doctor(
    *arguments: str, cwd: Path, env: dict[str, str] | None = None, seconds: float = SECONDS
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DOCTOR, *arguments], cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False,
        timeout=seconds,
    )  # fmt: skip


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_disk_costs_the_copy_alone(tiny_disk: Path, tmp_path: Path) -> None:
    done = doctor("--run", str(tiny_disk / "run"), "--", PY, "-c", "print('x' * 3_000_000)", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == "x" * 3_000_000 + "\n"


def test_a_folder_that_cannot_be_written_costs_no_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = doctor("--run", str(tmp_path / "file" / "run"), "--", "sh", "-c", "echo ran; exit 4", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "ran\n")
    assert "cannot keep the run" in done.stderr
    assert os.environ["DOCTOR_STATE"] in done.stderr


def test_names_with_spaces_unicode_and_newlines(tmp_path: Path) -> None:
    script = tmp_path / "mein Läuf\n\x1b[31m.sh"
    script.write_text('#!/bin/sh\necho "$1"; exit 6\n', encoding="utf-8")
    script.chmod(0o755)
    run = tmp_path / "a b\nü"
    done = doctor("--run", str(run), "--", str(script), "a 'b\n", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (6, "a 'b\n\n")
    assert "\x1b" not in done.stderr
    record = json.loads((run / "doctor-run/try_1/record.json").read_text(encoding="utf-8"))
    assert record["command"] == [str(script), "a 'b\n"]


def test_the_default_folder_is_named_after_the_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)", encoding="utf-8")
    assert doctor("--", PY, "train.py", cwd=tmp_path).returncode == 0
    [run] = (tmp_path / "doctor-runs").iterdir()
    assert run.name.endswith("-train")
    assert (run / "doctor-run/try_1/console.log").read_text(encoding="utf-8") == "1\n"


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["torchrun", "--nproc-per-node", "2", "src/pretrain_gpt.py", "--lr", "1"], "pretrain_gpt"),
        (["python", "-m", "trl.scripts.sft"], "trl.scripts"),
        (["sh", "-c", "echo a/b"], "sh"),
        (["/opt/My Tool"], "My_Tool"),
        (["../.."], "job"),
    ],
)
def test_names_of_commands(argv: list[str], name: str) -> None:
    assert name_of(argv) == name


def test_two_unrelated_supervisors_get_a_folder_each(tmp_path: Path) -> None:
    argv = [*DOCTOR, "--quiet", "--run", str(tmp_path / "run"), "--", "sh", "-c", "echo $DOCTOR_RUN"]
    both = [subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2)]
    assert [p.communicate(timeout=SECONDS)[0] for p in both] == [f"{tmp_path / 'run'}\n".encode()] * 2
    assert {p.name for p in (tmp_path / "run/doctor-run").glob("try_*")} == {"try_1", "try_2"}
    assert all((tmp_path / f"run/doctor-run/try_{n}/record.json").exists() for n in (1, 2))


def test_supervisors_of_one_step_share_an_attempt(tmp_path: Path) -> None:
    step = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"}
    for attempt in (1, 2):
        ranks = [
            subprocess.Popen(
                [*DOCTOR, "--quiet", "--", "sh", "-c", f"echo rank {rank}; exit {rank}"], cwd=tmp_path,
                env={**os.environ, **step, "SLURM_PROCID": str(rank), "SLURM_RESTART_COUNT": str(attempt - 1)},
                stdout=subprocess.DEVNULL,
            )
            for rank in range(3)
        ]  # fmt: skip
        assert [p.wait(SECONDS) for p in ranks] == [0, 1, 2]
    runs = sorted((tmp_path / "doctor-runs").iterdir())
    assert [r.name for r in runs] == ["slurm-77.0.0-sh", "slurm-77.0.1-sh"]
    for run in runs:
        [place] = (run / "doctor-run").glob("try_*")
        assert [(place / f"rank_{n}.log").read_text(encoding="utf-8") for n in range(3)] == [
            f"rank {n}\n" for n in range(3)
        ]
        records = [json.loads((place / f"rank_{n}.json").read_text(encoding="utf-8")) for n in range(3)]
        assert [(r["rank"], r["exit"]["code"]) for r in records] == [(n, n) for n in range(3)]
        assert not (place / "record.json").exists()


def test_variables_are_set_where_nobody_did(tmp_path: Path) -> None:
    shown = "env | grep -E '^(PYTHONFAULT|NCCL_DEBUG|TORCH_FR_BUFFER)'"
    env = {"NCCL_DEBUG": "INFO", "TORCH_NCCL_TRACE_BUFFER_SIZE": "7"}
    done = doctor("--run", "run", "--leave", "PYTHONUNBUFFERED", "--", "sh", "-c", shown, cwd=tmp_path, env=env)
    assert sorted(done.stdout.split()) == ["NCCL_DEBUG=INFO", "PYTHONFAULTHANDLER=1"]
    assert "PYTHONFAULTHANDLER" in done.stderr
    record = json.loads((tmp_path / "run/doctor-run/try_1/record.json").read_text(encoding="utf-8"))
    assert "PYTHONFAULTHANDLER" in record["set"]
    assert {"NCCL_DEBUG", "PYTHONUNBUFFERED", "TORCH_FR_BUFFER_SIZE"} <= set(record["left_as_it_was"])


def test_which_variables_fit_which_command(tmp_path: Path) -> None:
    def names(command: str, **more: bool) -> set[str]:
        argv = command.split()
        facts = {"terminal": False, "reached": True, "old_torch": False, "own_logs": False, "many": False, **more}
        return set(additions(Surroundings(launcher(argv), tmp_path, **facts), {}, [])[0])

    assert "TORCHELASTIC_ERROR_FILE" in names("python train.py")
    assert {"PET_TEE", "PET_LOG_DIR"} <= names("python -m torch.distributed.run t.py") & names("/x/torchrun t.py")
    assert "TORCHELASTIC_ERROR_FILE" not in names("torchrun t.py") | names("python t.py", many=True)
    assert "PET_TEE" not in names("torchrun t.py", terminal=True) | names("torchrun t.py", own_logs=True)
    assert not [n for n in names("srun python t.py", reached=False) if "FILE" in n or "DIR" in n]
    assert "TORCH_FR_BUFFER_SIZE" not in names("python t.py", old_torch=True)


def test_a_copy_keeps_the_beginning_and_the_end(tmp_path: Path) -> None:
    copy = CopyOfOutput(tmp_path / "console.log", part=1000)
    for n in range(100):
        assert copy.add(b"%099d\n" % n) == ""
    kept = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert kept["console.0.log"].startswith(b"%099d\n" % 0)
    assert b"%099d\n" % 99 in kept["console.log"] + kept["console.1.log"]
    assert sum(map(len, kept.values())) < 4000
    assert b"were left out" in kept["console.log"]
