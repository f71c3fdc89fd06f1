"""`doctor playbook`: begin one, have each mistake explained by file and line, see what is covered; a team's own join."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from traindoctor.agent.doors.cli import main

GOOD = """---
cause: dist.ib_link
title: The blue switch flaps
signatures:
  - pattern: 'blue-switch: port (?P<port>\\d+) flapped'
    weight: strong
    matches: ["kernel: blue-switch: port 12 flapped"]
    ignores: ["blue-switch: port 12 up"]
checks: [ib_status]
contradicts:
  - {key: gpu.xid, op: exists, why: the card itself complains}
fixes:
  - {title: Move the cable, text: To a free port., verify: ib_status}
sources: [our runbook]
---
## What it looks like
A line of the kernel names the blue switch.
## Why it happens
Its ports wear out.
## How to tell it apart
Other switches do not print it.
## What to do
Move the cable.
## How to prevent it
Replace the switch.
"""


def own(folder: Path, text: str, slug: str = "dist/blue_switch") -> Path:
    path = folder / f"{slug}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_new_playbook_fails_its_proofs_until_it_is_filled_in(tmp_path, capsys):
    assert main(["playbook", "new", "dist.ib_link", "blue_switch", "--folder", str(tmp_path)]) == 0
    path = tmp_path / "dist" / "blue_switch.md"
    assert path.is_file() and str(path) in capsys.readouterr().out
    assert main(["playbook", "check", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    assert f"{path}:6: signature 1 does not match its own example" in told and "no tool emits 'todo.key'" in told
    own(tmp_path, GOOD)
    assert main(["playbook", "check", str(tmp_path)]) == 0
    assert "1 playbooks, 0 faults, 0 gaps" in capsys.readouterr().out


@pytest.mark.parametrize(("arguments", "said"), [
    (["dist.gremlins"], "no cause 'dist.gremlins'"),
    (["dist.ib_link", "../escape"], "is no file name"),
    (["dist.ib_link", "taken"], "is there already"),
])  # fmt: skip
def test_new_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    own(tmp_path, GOOD, "dist/taken")
    assert main(["playbook", "new", *arguments, "--folder", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and (tmp_path / "dist" / "taken.md").read_text() == GOOD


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("cause: dist.ib_link", "cause: dist.gremlins", 2, "is not in causes.yaml"),
        ("checks: [ib_status]", "checks: [look_hard]", 9, "no tool is called 'look_hard'"),
        ("matches: [\"kernel: blue", "matches: [\"kernel: red", 7, "does not match its own example"),
        ("ignores: [\"blue-switch: port 12 up", "ignores: [\"blue-switch: port 12 flapped", 8, "which it must ignore"),
        ("key: gpu.xid", "key: gpu.mood", 11, "no tool emits 'gpu.mood'"),
        ("text: To a free port.", "settings: {mood: good}", 13, "no canonical setting is called 'mood'"),
        ("text: To a free port.", "settings: {optimizer: {multiply: 2}}", 13, "which is not counted"),
        ("verify: ib_status", "verify: hope", 13, "no tool is called 'hope'"),
        ("weight: strong", "wieght: strong", 6, "Extra inputs are not permitted"),
        ("title: The blue switch flaps", "title: [", 5, "did not find"),
    ],
)  # fmt: skip
def test_each_mistake_is_told_by_file_and_line(tmp_path, capsys, old, new, line, said):
    assert old in GOOD
    path = own(tmp_path, GOOD.replace(old, new))
    assert main(["playbook", "check", str(tmp_path)]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"{path}:{line}: ") and said in told[0]


def test_what_a_playbook_lacks_is_told_and_fails_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own(tmp_path, GOOD.replace("sources: [our runbook]\n", "").replace("## How to prevent it", "## Afterword"))
    assert main(["playbook", "check", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "no source (incomplete)" in told and "no section 'How to prevent it' (incomplete)" in told


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["playbook", "coverage"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[-1].startswith("all") and "126 of 126" in rows[-1]
    assert main(["playbook", "coverage", "--json"]) == 0
    assert "memory/fragmentation" in json.loads(capsys.readouterr().out)["memory.fragmentation"]


def ask(run: Path, folder: Path, state: Path) -> dict:
    """A diagnosis in a process of its own: playbooks are read once a process."""
    said = subprocess.run(
        [Path(sys.executable).with_name("doctor"), "ask", "why did it stop?", "--run", run, "--json", "--quiet"],
        env={**os.environ, "DOCTOR_KNOWLEDGE": str(folder), "DOCTOR_STATE": str(state)},
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return json.loads(said.stdout)


def test_a_teams_playbook_joins_the_built_in_ones(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "train.log").write_text(
        "step 1 loss 2.0\nkernel: blue-switch: port 12 flapped\nRuntimeError: connection lost\n"
    )
    own(tmp_path / "team", GOOD)
    report = ask(run, tmp_path / "team", tmp_path / "state")
    assert (report["root_cause"]["id"], report["root_cause"]["playbook"]) == ("dist.ib_link", "dist/blue_switch")


def test_a_teams_playbook_overrides_the_built_in_one_of_its_name(tmp_path: Path) -> None:
    own(tmp_path, GOOD.replace("The blue switch flaps", "Our own words for it"), "dist/ib_link")
    shown = subprocess.run(
        [Path(sys.executable).with_name("doctor"), "playbook", "show", "dist/ib_link"],
        env={**os.environ, "DOCTOR_KNOWLEDGE": str(tmp_path)}, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "Our own words for it" in shown and "InfiniBand" not in shown
