"""What is given as a report and is none: one line, exit 2, nothing written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.repair.applying.makers import journal_of, kept, one_file, patch, report

WRONG: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "not JSON"),
    "deep": ("[" * 100_000, "not JSON"),
    "a list": ("[]", "names no schema"),
    "another tool's": ('{"results": []}', "names no schema"),
    "another version": ('{"schema": "traindoctor.report/2"}', "another version"),
    "a schema that is no text": ('{"schema": {"a": 1}}', "another version"),
    "fields missing": ('{"schema": "traindoctor.report/1"}', "field required"),
    "fields too many": ({"surprise": 1}, "surprise"),
    "no patches": ({"patches": [], "fixes": []}, "no patch"),
    "a fix names a patch that is not there": ({"fixes": [{"title": "x", "patches": ["P7"]}]}, "P7"),
    "no run": ({"runs": []}, "about no run"),
    "standard input": ({"runs": [{"id": "r1", "root": "-"}]}, "with --run"),
    "a run that is gone": ({"runs": [{"id": "r1", "root": "/nowhere/run"}]}, "is gone"),
    "a run with a NUL": ({"runs": [{"id": "r1", "root": "/x\0y"}]}, "is gone"),
    "patch without a file": ({"patches": [{"id": "P1"}]}, "patches.0.file"),
    "patch by a stranger": ({"patches": [{"id": "P1", "file": "f", "sha256": "", "diff": "", "by": "me"}]}, "by"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_refused(name: str, tmp_path: Path, doctor) -> None:
    what, words = WRONG[name]
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    if isinstance(what, str):
        named.write_text(what)
    else:
        kept(named, json.loads(named.read_text()) | what)
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and len(done.stderr) < 600 and not done.stdout
    assert file.read_text() == "a: 1\n" and not journal_of().exists()


def test_two_patches_of_one_name(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    kept(named, report([file.parent], [patch("P1", "config.yaml", "a: 1\n", f"a: {n}\n") for n in (2, 3)]))
    done = doctor("apply", named, "--yes")
    assert done.returncode == 2 and "several patches named P1" in done.stderr and file.read_text() == "a: 1\n"


def test_things_that_are_no_file(tmp_path: Path, doctor) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "empty").mkdir()
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    for name, words in (
        ("pipe.json", "not a regular file"), ("empty", "no report"), ("binary.json", "not text"), ("no.json", "no report"),
    ):  # fmt: skip
        done = doctor("apply", tmp_path / name, "--yes")
        assert done.returncode == 2 and words in done.stderr and len(done.stderr.splitlines()) == 1
    assert "no session" in doctor("apply", "nonsense").stderr


def test_a_folder_that_holds_a_report(tmp_path: Path, doctor) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    named.rename(file.parent / "doctor-report.json")
    assert doctor("apply", file.parent, "--yes").returncode == 0 and file.read_text() == "a: 2\n"


def test_a_report_on_standard_input(tmp_path: Path, process) -> None:
    file, named = one_file(tmp_path, "a: 1\n", "a: 2\n")
    assert process("apply", "-", "--yes", stdin=named.read_text()).returncode == 0 and file.read_text() == "a: 2\n"
