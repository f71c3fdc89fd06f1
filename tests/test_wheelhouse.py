"""Files for machines without network: what is refused, and (soak) a doctor installed from them with the network off."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("wheelhouse", ROOT / "docs" / "wheelhouse.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--platform", "linux"], "no such platform: linux"),
        (["--platform", "win_amd64"], "no such platform"),
        (
            ["--platform", "manylinux_2_28_aarch64" if os.uname().machine == "x86_64" else "manylinux_2_28_x86_64"],
            "on such a machine",
        ),
        (["--python-version", "3.9"], "3.11 or newer"),
        (["--python-version", "3.99"], "must run on one"),
        (["--extras", "ray,nothing"], "no such extra: nothing"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = [
        "--platform",
        f"manylinux_2_28_{os.uname().machine}",
        "--python-version",
        HERE,
        "--out",
        str(tmp_path / "w"),
    ]
    assert script().main([*usual, *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    assert not (tmp_path / "w").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("x")
    platform = f"manylinux_2_28_{os.uname().machine}"
    assert script().main(["--platform", platform, "--python-version", HERE, "--out", str(tmp_path)]) == 2
    assert "is no wheelhouse" in capsys.readouterr().err
    assert (tmp_path / "mine").read_text() == "x"


def test_a_platform_stands_for_all_older_ones() -> None:
    tags = script().platforms("manylinux_2_28_x86_64")
    assert {"manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64"} <= set(tags)
    assert "manylinux_2_31_x86_64" not in tags


@pytest.fixture
def installer(tmp_path: Path) -> Path:
    """The script with nothing beside it."""
    text = (ROOT / "docs" / "wheelhouse_install.sh").read_text()
    values = {"VERSION": "0.1.0", "PYTHON": HERE, "GLIBC": "17", "MACHINE": os.uname().machine, "EXTRAS": ""}
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    path = tmp_path / "files" / "install.sh"
    path.parent.mkdir()
    path.write_text(text)
    (path.parent / "SHA256SUMS").write_text(f"{'0' * 64}  gone.whl\n")
    return path


def install(installer: Path, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": os.environ["PATH"], "HOME": str(installer.parent)} | environment
    command = ["sh", str(installer), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=kept)


def test_it_never_installs_into_an_environment_of_somebody_elses(installer: Path, tmp_path: Path) -> None:
    training, full = tmp_path / "training", tmp_path / "full"
    training.mkdir()
    (training / "pyvenv.cfg").write_text("home = /usr/bin\n")
    full.mkdir()
    (full / "mine").write_text("x")
    python = ("--python", sys.executable)
    for target, said in ((training, "did not make"), (full, "is not empty"), (full / "mine", "is not a folder")):
        done = install(installer, target, *python)
        assert done.returncode == 2
        assert said in done.stderr
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        done = install(installer, tmp_path / "active" / "doctor", *python, **{name: str(tmp_path / "active")})
        assert done.returncode == 2
        assert "the active environment" in done.stderr
    assert (full / "mine").read_text() == "x"
    assert [p.name for p in training.iterdir()] == ["pyvenv.cfg"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a folder"),
        (["--into", "x"], "no such option"),
        (["a", "b"], "one folder only"),
        (["a", "--python"], "wants a path"),
        (["a", "--python", "/bin/false"], "does not start"),
    ],
)
def test_wrong_usage_of_the_installer(installer: Path, arguments: list[str], said: str) -> None:
    done = install(installer, *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_damaged_files_install_nothing(installer: Path, tmp_path: Path) -> None:
    done = install(installer, tmp_path / "with space" / "doctor", "--python", sys.executable)
    assert done.returncode == 2
    assert "damaged or missing" in done.stderr
    assert not (tmp_path / "with space").exists()


def test_another_python_or_an_older_machine_is_told(installer: Path, tmp_path: Path) -> None:
    text = installer.read_text()
    for was, then, said in (
        (f'"{HERE}" ]', '"3.99" ]', "these files are for"),
        ('-ge "17"', '-ge "9999"', "glibc here is"),
    ):
        assert was in text
        installer.write_text(text.replace(was, then))
        done = install(installer, tmp_path / "doctor", "--python", sys.executable)
        assert done.returncode == 2
        assert said in done.stderr


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_a_doctor_without_network(tmp_path: Path) -> None:
    """Made, copied, installed and used; the network is off from the copy on (as root), or names of servers lead nowhere."""
    made = tmp_path / "made"
    command = [
        sys.executable,
        "docs/wheelhouse.py",
        "--platform",
        f"manylinux_2_28_{os.uname().machine}",
        "--out",
        str(made),
    ]
    subprocess.run([*command, "--python-version", HERE], cwd=ROOT, check=True, timeout=1500)
    files = tmp_path / "a copy"
    shutil.copytree(made, files)
    off = ["unshare", "-n"] if os.getuid() == 0 and shutil.which("unshare") else []
    alone = {
        "HOME": str(tmp_path), "PATH": f"{Path(sys.executable).resolve().parent}:/usr/bin:/bin",
        "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9",
    }  # fmt: skip
    target = tmp_path / "of its own"
    for _ in range(2):  # the second is an update of the same
        done = subprocess.run([*off, str(files / "install.sh"), str(target)], env=alone, timeout=1500, check=False)
        assert done.returncode == 0
    shutil.copytree(ROOT / "evals" / "demo" / "files", tmp_path / "run")
    recorder = tmp_path / "training"  # the recorder goes there, from the same folder and with nothing else
    subprocess.run([sys.executable, "-m", "venv", str(recorder)], check=True, timeout=300)
    pip = [*off, str(recorder / "bin" / "python"), "-m", "pip", "install", "--no-index", "--no-deps", "-q"]
    subprocess.run([*pip, "--find-links", str(files), "traindoctor-recorder"], env=alone, check=True, timeout=300)
    asked = [*off, str(target / "bin" / "doctor"), "triage", str(tmp_path / "run"), "--json"]
    report = subprocess.run(asked, env=alone, timeout=300, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert json.loads(report.stdout)["root_cause"]["id"] == "hw.gpu_fell_off_bus"
    found = [*off, str(target / "bin" / "doctor"), "index", "search", "GPU fell off the bus"]
    passages = subprocess.run(found, env=alone, timeout=300, check=True, capture_output=True, text=True).stdout
    assert "gpu_fell_off_bus" in passages
