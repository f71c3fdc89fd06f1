"""Packages of a real environment, environments that are broken on purpose, and pip's own words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import ToolError
from traindoctor.agent.core.types import ToolResult
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.versions import told_by_pip
from traindoctor.agent.tools.settings.environment_tools import package_conflicts

from tests.tools.captured import look


def put(site: Path, name: str, version: str, *requires: str, python: str = "") -> None:
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {r}\n" for r in requires)
    (folder / "METADATA").write_text(text + (f"Requires-Python: {python}\n" if python else "") + "\nName: not a header\n")
    (folder / "RECORD").write_text("")


def judge(environment: Path, run: Path) -> ToolResult:
    result = package_conflicts(Workspace([run], live=True, may_be_empty=True), environment=str(environment))
    assert all(package_conflicts.allows(e.key) for e in result.evidence)
    return result


def said(result: ToolResult, key: str) -> list[str]:
    return [str(e.value) for e in result.evidence if e.key == key]


def test_our_own_environment(tmp_path: Path) -> None:
    result = judge(Path(sys.prefix), tmp_path)
    assert result.outcome in {"clean", "finding"} and int(said(result, "package.checked")[0]) > 20
    assert not said(result, "package.conflict"), result.summary


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    site = next((tmp_path / "env").glob("lib/python3*/site-packages"))
    put(site, "torch", "2.2.0")
    put(site, "deepspeed", "0.10.0", "torch", "pydantic<2.0.0", "ninja; platform_system == 'Linux'", "sphinx; extra == 'doc'")
    put(site, "pydantic", "2.5.0", "typing-extensions>=4; python_version < '3'")
    put(site, "Flash_Attn", "2.5.0", "torch>=2.1")
    put(site, "odd", "not a version", "torch==2.*", "((")
    return tmp_path / "env"


def test_unmet_requirements(broken: Path, tmp_path: Path) -> None:
    result = judge(broken, tmp_path / "env" / "bin")
    assert said(result, "package.conflict") == ["deepspeed 0.10.0 requires pydantic<2.0.0, installed is 2.5.0"]
    assert said(result, "package.missing") == ["deepspeed 0.10.0 requires ninja, which is not installed"]
    assert result.outcome == "finding" and said(result, "package.checked") == ["5"]
    assert any("pydantic2-deepspeed" in v for v in said(result, "package.known_conflict"))


def test_pip_agrees(broken: Path, tmp_path: Path) -> None:
    (next(broken.glob("lib/python3*/site-packages/odd*")) / "METADATA").unlink()
    told = subprocess.run([sys.executable, "-m", "pip", "--python", broken, "check"], capture_output=True, text=True, check=False)
    if "No module named pip" in told.stderr:
        pytest.skip("no pip here")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "check.log").write_text(told.stdout)
    recorded = package_conflicts(Workspace([tmp_path / "run"], live=False))
    assert "pydantic<2.0.0" in said(recorded, "package.conflict")[0], told
    assert "ninja" in said(recorded, "package.missing")[0]


def test_duplicates_remains_and_other_pythons(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    put(site, "numpy", "1.26.4")
    put(site, "numpy", "2.0.0")
    put(site, "old", "1.0", python=">=3.7,<3.10")
    (site / "~orch-2.1.dist-info").mkdir()
    (site / "empty-1.0.dist-info").mkdir()
    result = judge(tmp_path, tmp_path)
    assert "1.26.4 and 2.0.0" in said(result, "package.duplicate")[0]
    assert "requires Python >=3.7,<3.10, this is 3.12" in said(result, "package.other_python")[0]
    assert "~orch" in said(result, "package.remains")[0] and "empty" in said(result, "package.broken")[0]


def test_the_packages_of_a_process(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    code = "import numpy, time; print('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        try:
            result = package_conflicts(Workspace([tmp_path], pids=(process.pid,), may_be_empty=True))
        finally:
            process.kill()
    assert int(said(result, "package.checked")[0]) > 20


def test_nothing_is_looked_at_unasked(tmp_path: Path) -> None:
    assert package_conflicts(Workspace([tmp_path], live=True, may_be_empty=True)).outcome == "not_applicable"
    with pytest.raises(ToolError, match="no such path"):
        package_conflicts(Workspace([tmp_path], live=True, may_be_empty=True), environment="/nowhere/env")
    assert judge(tmp_path, tmp_path).outcome == "failed"


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("conflict", "vllm 0.6.0 requires torch==2.4.0, but you have torch 2.6.0 which is incompatible."),
        ("conflict", "peft 0.11.0 has requirement transformers>=4.40, but you have transformers 4.36.2."),
        ("missing", "accelerate 1.0.1 requires psutil, which is not installed."),
        ("", "this model requires 80 GB, but you have 40 GB"),
        ("", "step 4 requires grad"),
    ],
)
def test_the_words_of_pip(key: str, line: str, tmp_path: Path) -> None:
    assert (told_by_pip(line) or ("", ""))[0] == key
    seen = look(package_conflicts, tmp_path, install_log=f"Installing\n{line}\n")
    assert bool(seen.values(f"package.{key or 'conflict'}")) is bool(key)


def test_pip_found_nothing(tmp_path: Path) -> None:
    seen = look(package_conflicts, tmp_path, check_log="No broken requirements found.\ntorch==2.6.0\n")
    assert seen.values("package.checked") == [True] and seen.result.outcome == "clean"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_process_of_another_user(tmp_path: Path) -> None:
    assert package_conflicts(Workspace([tmp_path], pids=(1,), may_be_empty=True)).outcome == "failed"
