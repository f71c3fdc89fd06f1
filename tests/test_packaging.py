"""The wheel: it holds every package and every data file, and works where a training shell is unfriendly."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HOUSE = ("agent", "evals", "index", "knowledge", "tui")
UNSHIPPED = ("incidents", "threads", "healthy", "recorded", "recorders")  # for measuring: not in the wheel
RECORDED = {*UNSHIPPED, "demo"}


def on_disk() -> set[str]:
    """Packages as the folders say."""
    return {
        ".".join(("traindoctor", *init.parent.relative_to(ROOT).parts))
        for top in HOUSE
        for init in (ROOT / top).rglob("__init__.py")
        if not RECORDED & set(init.relative_to(ROOT).parts)
    }


def test_package_list_is_what_is_on_disk() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert set(declared) == on_disk()
    folders = {p.parent for top in HOUSE for p in (ROOT / top).rglob("*.py") if not RECORDED & set(p.parts)}
    assert not [f for f in folders if not (f / "__init__.py").exists()]


def test_every_dependency_has_a_pinned_version() -> None:
    import re

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in
              (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}  # fmt: skip
    names = {re.split(r"[\s<>=;\[]", w)[0].lower().replace("_", "-") for w in wanted}
    assert not names - pinned - {project["name"]}
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the tracked and untracked sources."""
    import shutil

    source = tmp_path_factory.mktemp("source")
    for top in HOUSE:
        shutil.copytree(ROOT / top, source / top, ignore=shutil.ignore_patterns("__pycache__", *UNSHIPPED))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, cwd=out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A throw-away environment with the wheel; dependencies come from ours, our own editable install does not."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=120)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "-q", str(wheel)]
    subprocess.run(pip, check=True, timeout=120)
    site = subprocess.check_output([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    dependencies = Path(site.decode().strip()) / "dependencies.pth"
    dependencies.write_text(sysconfig.get_path("purelib") + "\n")  # its own .pth files are not followed
    return folder


def test_wheel_holds_every_module_and_data_file(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    for top in HOUSE:
        for path in (ROOT / top).rglob("*"):
            parts = path.relative_to(ROOT).parts
            wanted = path.suffix == ".py" or top == "knowledge" or (top == "evals" and "demo" in parts)
            if path.is_file() and wanted and not {"__pycache__", *UNSHIPPED} & set(parts):
                assert "/".join(("traindoctor", *parts)) in held
    assert not [
        name for name in held
        if any(f"/{folder}/" in name for folder in UNSHIPPED) or not name.startswith("traindoctor")
    ]  # fmt: skip


def test_every_package_of_the_wheel_imports(installed: Path, tmp_path: Path) -> None:
    code = "import importlib, sys\nfor n in sys.argv[1:]: print(importlib.import_module(n).__file__)"
    command = [str(installed / "bin" / "python"), "-c", code, *sorted(on_disk())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert all(line.startswith(str(installed)) for line in done.stdout.splitlines())


def test_a_folder_named_agent_beside_the_user_does_no_harm(installed: Path, tmp_path: Path) -> None:
    """Training repositories have their own `agent`, `index` and `evals` on PYTHONPATH."""
    for top in HOUSE:
        (tmp_path / top).mkdir()
        (tmp_path / top / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    for command in (["--version"], ["playbook", "list"]):
        done = subprocess.run(
            [str(installed / "bin" / "doctor"), *command], capture_output=True, text=True, timeout=120, check=False,
            cwd=tmp_path, env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout
