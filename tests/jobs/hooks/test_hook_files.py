"""What `doctor hook` prints: files that parse, that administrators' tools accept, and that keep exit codes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.doors.cli import main
from traindoctor.agent.jobs.hooks.hook_templates import TEMPLATES

SCRIPTS = [t for t in TEMPLATES if t.script]
MANIFESTS = [t for t in TEMPLATES if not t.script]


def hooked(tmp_path: Path, scheduler: str, part: str, *more: str) -> Path:
    file = tmp_path / f"{scheduler}-{part}"
    assert main(["hook", scheduler, "--part", part, "-o", str(file), *more]) == 0
    return file


def fake_doctor(tmp_path: Path, code: int = 0) -> Path:
    """A program in doctor's place that notes how it was called; `run -- ...` runs the command."""
    file = tmp_path / "a doctor"
    file.write_text(
        f'#!/bin/bash\necho "$@" >>"{tmp_path}/calls"\n'
        'if [[ $1 == run ]]; then while [[ $1 != -- ]]; do shift; done; shift; exec "$@"; fi\n'
        f"exit {code}\n"
    )
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("one", SCRIPTS, ids=lambda t: f"{t.scheduler}-{t.part}")
def test_scripts_parse_and_have_nothing_left_to_fill_in(one, tmp_path: Path) -> None:
    file = hooked(tmp_path, one.scheduler, one.part, "--doctor", "/opt/with space/it's/doctor")
    assert os.access(file, os.X_OK)
    done = subprocess.run(["bash", "-n", str(file)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    text = file.read_text()
    assert "@DOCTOR@" not in text and "@COMMAND@" not in text
    told = subprocess.run(
        ["bash", "-c", f'eval "$(grep -m 1 ^DOCTOR= "{file}")"; echo "$DOCTOR"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.strip() == "/opt/with space/it's/doctor"
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", "--severity=warning", str(file)], check=True)


@pytest.mark.parametrize("one", MANIFESTS, ids=lambda t: f"{t.scheduler}-{t.part}")
def test_manifests_are_valid_and_the_scripts_in_them_parse(one, tmp_path: Path) -> None:
    import kubernetes_validate

    file = hooked(tmp_path, one.scheduler, one.part)
    said = yaml.safe_load(file.read_text())
    for version in ("1.31", "1.34"):
        kubernetes_validate.validate(said, version, strict=True)
    pod = said["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what podFailurePolicy asks for
    for container in [*pod.get("initContainers", []), *pod["containers"]]:
        shell = container["command"][0]
        checked = subprocess.run([shell, "-n", "-c", container["args"][0]], capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, "")
    for rule in said["spec"]["podFailurePolicy"]["rules"]:
        named = rule.get("onExitCodes", {}).get("containerName", "train")
        assert named in [c["name"] for c in pod["containers"]]


@pytest.mark.parametrize(
    ("command", "code"),
    [("echo step 1; echo last words >&2; exit 7", 7), ("echo fine", 0), ("kill -9 $$", 137)],
)
def test_the_pods_wrapper_keeps_output_and_exit_code(command: str, code: int, tmp_path: Path) -> None:
    said = yaml.safe_load(hooked(tmp_path, "kubernetes", "sidecar").read_text())
    script = said["spec"]["template"]["spec"]["containers"][0]["args"][0].replace("/run-of-job", str(tmp_path))
    done = subprocess.run(
        ["bash", "-c", script, "train", "bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code and (tmp_path / "exit_code").read_text().strip() == str(code)
    log = (tmp_path / "console.log").read_text()
    assert sorted(log.split("\n")) == sorted(done.stdout.split("\n"))
    assert ("last words" in log) == ("last words" in command)


def test_the_pods_wrapper_passes_the_end_on(tmp_path: Path) -> None:
    said = yaml.safe_load(hooked(tmp_path, "kubernetes", "sidecar").read_text())
    script = said["spec"]["template"]["spec"]["containers"][0]["args"][0].replace("/run-of-job", str(tmp_path))
    job = "import signal, sys, time\nsignal.signal(15, lambda *_: (print('saved', flush=True), sys.exit(5)))\n"
    job += "print('up', flush=True)\nwhile True: time.sleep(0.1)\n"
    with subprocess.Popen(["bash", "-c", script, "train", sys.executable, "-c", job], stdout=subprocess.PIPE) as child:
        assert child.stdout and child.stdout.readline() == b"up\n"
        child.send_signal(signal.SIGTERM)
        assert b"saved" in child.stdout.read() and child.wait(30) == 5


def test_the_sidecar_diagnoses_when_it_is_told_to_end(tmp_path: Path) -> None:
    said = yaml.safe_load(hooked(tmp_path, "kubernetes", "sidecar").read_text())
    script = said["spec"]["template"]["spec"]["initContainers"][0]["args"][0]
    script = script.replace("/run-of-job", str(tmp_path)).replace(
        "/opt/doctor/bin/doctor", f'"{fake_doctor(tmp_path)}"'
    )
    for code, told in (("0", ""), ("3", f"triage {tmp_path} --write --offline --plain")):
        (tmp_path / "calls").write_text("")
        (tmp_path / "exit_code").write_text(code)
        with subprocess.Popen(
            ["sh", "-c", f"echo up; {script}"], stdout=subprocess.PIPE, start_new_session=True
        ) as child:
            assert child.stdout and child.stdout.readline() == b"up\n"
            _until_it_waits(child.pid)
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0
        assert (tmp_path / "calls").read_text().strip() == told


def _until_it_waits(pid: int) -> None:
    """The trap is set before the first `sleep` is started."""
    from tests.jobs.slurm.cluster import until

    children = Path(f"/proc/{pid}/task/{pid}/children")
    until(lambda: bool(children.read_text().strip()), 20, "the sidecar does not wait")


@pytest.mark.parametrize(("command", "code"), [("exit 3", 3), ("true", 0)])
def test_the_batch_script_keeps_the_exit_code_with_and_without_doctor(command: str, code: int, tmp_path: Path) -> None:
    """Without Slurm: `srun` is a program that runs its arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "srun").write_text('#!/bin/bash\nexec "$@"\n')
    (programs / "srun").chmod(0o755)
    for name, doctor in (("with", fake_doctor(tmp_path, 1)), ("without", tmp_path / "nowhere")):
        (tmp_path / name).mkdir()
        text = hooked(tmp_path / name, "slurm", "sbatch", "--doctor", str(doctor)).read_text()
        script = tmp_path / name / "job.sh"
        script.write_text(text.replace("python train.py", f"bash -c '{command}'"))
        env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"}
        done = subprocess.run(
            ["bash", str(script)], cwd=tmp_path, env=env, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
    calls = (tmp_path / "calls").read_text()
    assert "run --run doctor-runs/4711 --" in calls and ("triage --slurm 4711" in calls) == (code != 0)


def test_an_epilog_returns_at_once_with_0_whatever_is_wrong(tmp_path: Path) -> None:
    for doctor in (tmp_path / "nowhere", fake_doctor(tmp_path, 9)):
        file = tmp_path / f"epilog-{doctor.name}"
        assert main(["hook", "slurm", "-o", str(file), "--doctor", str(doctor), "--logs", "/proc/no/such/place"]) == 0
        for more in ({}, {"SLURM_JOB_ID": "x; reboot"}, {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "no body"}):
            env = {k: v for k, v in os.environ.items() if not k.startswith("SLURM")} | more
            done = subprocess.run(["bash", str(file)], env=env, capture_output=True, timeout=20, check=False)
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (tmp_path / "calls").exists()


def test_a_launch_line_runs_without_doctor_too(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "torchrun").write_text('#!/bin/bash\necho "torchrun $*"\nexit 6\n')
    (programs / "torchrun").chmod(0o755)
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
    for doctor in (tmp_path / "nowhere", fake_doctor(tmp_path)):
        file = tmp_path / f"launch-{doctor.name}"
        assert main(["hook", "torchrun", "-o", str(file), "--doctor", str(doctor)]) == 0
        done = subprocess.run(
            [str(file), "--lr", "1"], env=env, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 6 and done.stdout.strip().endswith("train.py --lr 1")


@pytest.mark.parametrize(("words", "said"), [
    (["lsf"], "there is no hook for 'lsf'"),
    (["slurm", "--part", "prolog"], "it has: epilog, sbatch"),
    (["ray", "--doctor", "bin/doctor"], "no absolute path"),
    (["kubernetes", "--doctor", "/a b/doctor"], "cannot stand in a manifest"),
    (["slurm", "--logs", "/x\ny"], "cannot stand in a script"),
    (["slurm", "-o", "/no/such/folder/x"], "cannot write"),
])  # fmt: skip
def test_what_cannot_be_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hook", *words]) == 2
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    assert main(["hook", "slurm", "-o", str(tmp_path / "mine")]) == 2
    assert (tmp_path / "mine").read_text() == "mine"
