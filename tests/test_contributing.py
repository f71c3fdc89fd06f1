"""The worked examples of CONTRIBUTING.md, carried out as they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml
from traindoctor.agent.core.own_files import KNOWLEDGE
from traindoctor.agent.reading.curves.formats import metric_text
from traindoctor.agent.reading.run import metric_names
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.reading.settings.settings import read_settings
from traindoctor.agent.reading.settings.settings_map import settings_map
from traindoctor.agent.tools import machine
from traindoctor.agent.tools.curves.metrics_tools import read_metrics
from traindoctor.agent.tools.tool import all_tools

PAGE = Path(__file__).resolve().parents[1] / "CONTRIBUTING.md"
Doctor = Callable[..., CompletedProcess[str]]


def example(name: str) -> str:
    """The block of the page that is marked with a name."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert found, name
    return found[1]


def run_of(folder: Path, files: dict[str, str]) -> Path:
    run = folder / "run"
    run.mkdir()
    for name, text in files.items():
        (run / name).write_text(text)
    return run


def extended(folder: Path, name: str) -> Path:
    """The table of doctor with what the page adds to it."""

    def join(table: Any, more: Any) -> Any:
        if isinstance(more, dict):
            return {**table, **{k: join(table[k], v) if k in table else v for k, v in more.items()}}
        return table + more

    path = folder / name
    path.write_text(json.dumps(join(yaml.safe_load((KNOWLEDGE / name).read_text()), yaml.safe_load(example(name)))))
    return path


def test_a_failure_mode_and_its_repair(process: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own" / "dist" / "leaf_switch.md"
    own.parent.mkdir(parents=True)
    own.write_text(example("dist/leaf_switch.md"))
    checked = process("playbook", "check", own.parents[1])
    assert "1 playbooks, 0 faults, 0 gaps" in checked.stdout, checked.stdout
    log = "step 1 loss 2.0\nleafd[312]: supervisor restarted, 16 ports down\nRuntimeError: connection lost\n"
    script = "".join(line[1:] + "\n" for line in example("patch").splitlines()[3:] if line[0] in " -")
    run = run_of(tmp_path, {"train.log": log, "launch.sh": script})
    monkeypatch.setenv("DOCTOR_KNOWLEDGE", str(own.parents[1]))
    report = json.loads(process("ask", "why did it stop?", "--run", run, "--json", "--quiet").stdout)
    assert report["root_cause"]["playbook"] == "dist/leaf_switch"
    assert [p["diff"] for p in report["patches"]] == [example("patch")]


def test_a_log_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, {"train.log": "".join(f"step {n} | loss_of_batch {3 - n / 100:.4f}\n" for n in range(40))})

    def losses() -> list[Any]:
        metric_names.vocabulary.cache_clear()
        metric_names.meaning.cache_clear()
        metric_text._label.cache_clear()
        return [e.value for e in read_metrics(Workspace([run])).evidence if e.key == "metrics.series"]

    try:
        assert losses() == []
        monkeypatch.setattr(metric_names, "METRICS", extended(tmp_path, "metrics.yaml"))
        assert losses() == ["loss"]
    finally:
        monkeypatch.undo()
        losses()


def test_a_setting_of_a_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, {"config.yaml": "loop:\n  clip_at: 0.7\n  name: ourtrainer\n"})

    def clipping() -> list[Any]:
        settings_map.cache_clear()
        return [s.value for s in read_settings(Workspace([run])).asked("gradient_clip_norm")]

    try:
        assert clipping() == []
        monkeypatch.setattr(settings_map.__wrapped__, "__defaults__", (extended(tmp_path, "settings.yaml"),))
        assert clipping() == [0.7]
    finally:
        monkeypatch.undo()
        clipping()


def test_a_tool(doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "fan_tools.py").write_text(example("fan_tools.py"))
    run = run_of(tmp_path, {"nvidia-smi.txt": "==============NVSMI LOG==============\n    Fan Speed       : 98 %\n"})
    monkeypatch.setattr(machine, "__path__", [*machine.__path__, str(tmp_path / "house")])
    all_tools.cache_clear()
    try:
        said = doctor("tool", "fan-speed", run)
        assert said.returncode == 0 and "1 of 1 fans at full speed" in said.stdout, said
    finally:
        monkeypatch.undo()
        all_tools.cache_clear()
