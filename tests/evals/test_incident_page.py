"""The commands of docs/incidents.md and docs/benchmark.md: the first are run in their order, of the others the parts exist."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import yaml
from traindoctor.evals.case import load
from traindoctor.evals.peers import results

ROOT = Path(__file__).resolve().parents[2]
Doctor = Callable[..., subprocess.CompletedProcess[str]]


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(page: str) -> list[str]:
    return [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]


def test_an_incident_of_ones_own_comes_out_of_the_commands_as_written(doctor: Doctor, here: None, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "evals" / "demo" / "files", tmp_path / "run")
    labels = blocks("incidents.md", "yaml")[0]
    for command in commands("incidents.md"):
        words = shlex.split(command)
        if words[0] == "doctor":
            done = doctor(*words[1:], cwd=tmp_path)
            assert done.returncode == 0, f"{command}: {done.stderr}"
        else:
            subprocess.run(words, cwd=tmp_path, check=True, timeout=60)
        if "--record lantern" in command:
            assert yaml.safe_load((tmp_path / "lantern" / "incident.yaml").read_text())["expected"] == []
            early = doctor("eval", "lantern", cwd=tmp_path)
            assert early.returncode == 2 and "still to be filled in: family, difficulty, expected" in early.stderr
            (tmp_path / "lantern" / "incident.yaml").write_text(labels)
            case = load(tmp_path / "lantern")
            assert case.id == "lantern"
            for mark in case.marks:
                assert mark.text in (case.files / mark.file).read_text(encoding="utf-8")
    assert len(json.loads((tmp_path / "before.json").read_text())) >= 1


def test_the_benchmark_page_has_its_marks_and_its_programs() -> None:
    page = (ROOT / "docs" / "benchmark.md").read_text(encoding="utf-8")
    for begin, end in ((results.BEGIN, results.END), ("<!-- calibration -->", "<!-- /calibration -->")):
        assert results.put_into(page, "x\n", begin, end) != page
    modules = re.findall(r"python -m traindoctor\.([\w.]+)", page)
    assert len(modules) >= 2
    for module in modules:
        path = ROOT.joinpath(*module.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
