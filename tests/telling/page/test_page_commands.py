"""The page as commands write it: beside the usual answer, whole or not at all, over nothing but a page."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.roles import PAGE
from traindoctor.agent.reading.run.workspace import Workspace

from tests.telling.page.parsed import checked, drawings

Doctor = Callable[..., "subprocess.CompletedProcess[str]"]
LINES = [f"step {n} loss {3 - n / 500:.4f} grad_norm 0.5" for n in range(1, 400)]
FAILED = [
    "RuntimeError: CUDA error: out of memory",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text("\n".join([*LINES, *FAILED, ""]))
    return folder


def test_the_page_stands_beside_the_usual_answer(doctor: Doctor, run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = doctor("ask", "Why did it stop?", "--run", run, "--json", "--html", page)
    assert done.returncode == 0, done.stderr
    report = Report.model_validate_json(done.stdout)
    parsed, tree = checked(page.read_text())
    assert (report.root_cause.id or "") in parsed.said() and "Why did it stop?" in parsed.said()
    assert len(drawings(tree)) >= 1
    assert any("Tried to allocate" in row for row in parsed.of_class(tree, "cited"))
    assert "step 396 loss" in parsed.said()  # a line around it
    assert f"wrote {page}" in done.stderr and sorted(tmp_path.iterdir()) == sorted([run, page])


def test_the_page_is_as_open_as_the_users_mask_says(doctor: Doctor, run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    before = os.umask(0o027)
    try:
        assert doctor("triage", run, "--html", page, "--quiet").returncode == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(page.stat().st_mode) == 0o640


def test_standard_output_takes_the_page_alone(doctor: Doctor, run: Path) -> None:
    done = doctor("triage", run, "--html", "-")
    checked(done.stdout)
    both = doctor("triage", run, "--html", "-", "--json")
    assert both.returncode == 2 and both.stdout == "" and both.stderr.count("\n") == 1


def test_nothing_but_a_page_is_written_over(doctor: Doctor, run: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.html"
    other.write_text("<!DOCTYPE html>\nmine")
    link = tmp_path / "link.html"
    link.symlink_to(run / "train.log")
    os.mkfifo(tmp_path / "pipe.html")
    (tmp_path / "empty.html").touch()
    for taken in (other, link, tmp_path / "pipe.html", tmp_path / "empty.html", run, tmp_path / "no" / "page.html"):
        done = doctor("triage", run, "--html", taken)
        assert done.returncode == 2, taken
        assert done.stdout == ""  # told before the diagnosis, not after it
        assert done.stderr.count("\n") == 1
    assert other.read_text().endswith("mine") and (run / "train.log").read_text().startswith("step 1")
    page = tmp_path / "page.html"
    for question in ("first?", "second?"):
        assert doctor("ask", question, "--run", run, "--html", page).returncode == 0
    assert "second?" in checked(page.read_text())[0].said()


def test_a_page_in_the_run_is_no_material(doctor: Doctor, run: Path) -> None:
    for name in ("doctor-report.html", "page.html", "train-log-2.log"):
        (run / name).write_bytes(PAGE + b"<p>CUDA error: an illegal memory access was encountered</p>")
    assert [f.name for f in Workspace([run], live=False).files] == ["train.log"]
    assert doctor("triage", run, "--write", "--quiet").returncode == 0
    page, tree = checked((run / "doctor-report.html").read_text())
    assert len(drawings(tree)) >= 1 and "illegal memory" not in page.said()
    assert [f.name for f in Workspace([run], live=False).files] == ["train.log"]


def test_a_session_becomes_a_page_later(doctor: Doctor, run: Path, tmp_path: Path) -> None:
    report = Report.model_validate_json(doctor("triage", run, "--json").stdout)
    page = tmp_path / "page.html"
    done = doctor("sessions", "show", report.session, "--html", page, "--plain")
    assert done.returncode == 0 and done.stdout.startswith("cause: ")
    full, tree = checked(page.read_text())
    assert drawings(tree) and "step 396 loss" in full.said()
    run.rename(tmp_path / "elsewhere")
    assert doctor("sessions", "show", report.session, "--html", page).returncode == 0
    bare, tree = checked(page.read_text())
    assert not drawings(tree) and "step 396 loss" not in bare.said() and "Tried to allocate" in bare.said()
    assert "could not be read" in bare.said()
    assert doctor("sessions", "show", report.session, "--html", page, "--all").returncode == 2


def test_a_full_disk_is_told_and_leaves_the_old_page(doctor, run, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    assert doctor("ask", "first?", "--run", run, "--html", page).returncode == 0
    before = page.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("traindoctor.agent.doors.commands.output.os.fsync", full)
    done = doctor("ask", "second?", "--run", run, "--html", page)
    assert done.returncode == 2 and "No space left" in done.stderr
    assert "Checked" in done.stdout  # the report itself was shown
    assert page.read_bytes() == before and sorted(tmp_path.iterdir()) == sorted([run, page])
