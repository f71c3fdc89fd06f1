"""`doctor history` and `doctor feedback` as a user runs them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import Doctor

OOM = (
    "step 1 loss 2.1\nstep 2 loss 2.0\n"
    'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    loss = model(ids)\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB "
    "of which 1.06 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 16.00 GiB is reserved "
    "by PyTorch but unallocated.\nWANDB_API_KEY=0123456789abcdef0123456789abcdef01234567\n"
)


pytestmark = pytest.mark.real  # an evaluation starts processes


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "exp42"
    folder.mkdir()
    (folder / "train.log").write_text(OOM)
    return folder


@pytest.fixture
def session(doctor: Doctor, run: Path) -> str:
    done = doctor("ask", "why did it die?", "--run", run, "--json", "-q")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["session"]


def state() -> Path:
    return Path(os.environ["DOCTOR_STATE"])


def listed(doctor: Doctor, *arguments: object) -> list[dict]:
    done = doctor("history", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["diagnoses"]


def test_an_empty_history_says_so(doctor: Doctor) -> None:
    done = doctor("history")
    assert done.returncode == 0 and done.stdout.startswith("Nothing yet")
    assert json.loads(doctor("history", "--json").stdout)["diagnoses"] == []
    assert not (state() / "history.sqlite").exists(), "looking makes nothing"


def test_a_diagnosis_is_listed_and_found_by_what_it_is_about(doctor: Doctor, session: str) -> None:
    (row,) = listed(doctor)
    cause = row["cause"]
    assert row["session"] == session and cause.startswith("memory.") and row["folder"].endswith("exp42")
    assert session in doctor("history").stdout and cause in doctor("history").stdout
    assert listed(doctor, "--cause", cause, "--job", "exp42", "--since", "1h")
    assert not listed(doctor, "--node", "n1") and not listed(doctor, "--job", "exp43")
    assert (state() / "history.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("history", "--since", "soon"), "is no span of time"),
        (("history", "--cause", "memory.fragmentatoin"), "memory.fragmentation"),
        (("feedback", "last"), "there is no report yet"),
        (("feedback", "no-such-session", "--cause", "memory.fragmentation"), "no session"),
    ],
)
def test_wrong_usage_is_one_line(doctor: Doctor, arguments: tuple[str, ...], said: str) -> None:
    done = doctor(*arguments)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_feedback_needs_a_cause_that_there_is(doctor: Doctor, session: str) -> None:
    for arguments, said in (
        (("--cause", "memory.fragmentaton"), "near it: memory.fragmentation"),
        (("--cause", "\x1b[2Jx"), "no cause is called"),
        ((), "--cause ID names it"),
        (("--good", "--cause", "hw.gsp_timeout"), "give one of them"),
        (("--undo",), "nothing was said"),
    ):
        done = doctor("feedback", session, *arguments)
        assert done.returncode == 2 and said in done.stderr and "\x1b" not in done.stderr, done.stderr
    assert listed(doctor)[0]["truth"] is None


def test_a_corrected_session_becomes_an_incident_that_eval_runs(doctor: Doctor, session: str, run: Path) -> None:
    done = doctor("feedback", "last", "--cause", "memory.activations", "--note", "expandable segments cured it")
    assert done.returncode == 0, done.stderr
    folder = state() / "incidents" / session
    assert f"doctor eval {folder}" in done.stdout
    made = yaml.safe_load((folder / "incident.yaml").read_text())
    assert made["expected"] == ["memory.activations"] and made["why"] == "expandable segments cured it"
    kept = (folder / "files" / "train.log").read_text()
    assert "Tried to allocate 2.00 GiB" in kept and "0123456789abcdef" not in kept
    assert all(mark["text"] in (folder / "files" / mark["file"]).read_text() for mark in made["evidence"])
    assert (folder / "files" / "train.log").stat().st_mode & 0o777 == 0o600
    scored = doctor("eval", state() / "incidents", "--json", "-q")
    assert scored.returncode == 0, scored.stderr
    assert session in scored.stdout and "memory.activations" in scored.stdout
    assert len(listed(doctor)) == 1, "an evaluation is no diagnosis of the team's"
    assert listed(doctor)[0]["truth"] == "memory.activations"
    assert "really memory.activations" in doctor("history").stdout
    assert (run / "train.log").read_text() == OOM


def test_the_last_word_holds_and_can_be_taken_back(doctor: Doctor, session: str, run: Path) -> None:
    doctor("feedback", session, "--cause", "memory.activations")
    doctor("feedback", session, "--good")
    assert listed(doctor)[0]["truth"] == listed(doctor)[0]["cause"]
    shutil.rmtree(run)
    done = doctor("feedback", session, "memory.graph_retained")
    assert done.returncode == 0, done.stderr
    folder = state() / "incidents" / session
    assert yaml.safe_load((folder / "incident.yaml").read_text())["expected"] == ["memory.graph_retained"]
    assert (folder / "files" / "train.log").is_file(), "what was kept of the run stays"
    done = doctor("feedback", session, "--undo")
    assert done.returncode == 0 and "and its incident" in done.stdout
    assert listed(doctor)[0]["truth"] is None and not folder.exists()
    assert not list((state() / "incidents").iterdir())


def test_a_run_that_is_gone_leaves_a_correction_without_incident(doctor: Doctor, session: str, run: Path) -> None:
    run.rename(run.parent / "moved")
    done = doctor("feedback", session, "--cause", "memory.activations")
    assert done.returncode == 0 and "no incident was made" in done.stdout
    assert listed(doctor)[0]["truth"] == "memory.activations"
    done = doctor("feedback", session, "--cause", "memory.activations", "--run", run.parent / "moved")
    assert done.returncode == 0 and (state() / "incidents" / session / "files" / "train.log").is_file()
    assert doctor("feedback", session, "--good", "--run", run).returncode == 2


def test_a_colleagues_report_can_be_corrected_on_a_shared_path(
    doctor: Doctor, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "theirs.json"
    report.write_text(doctor("sessions", "show", session, "--json").stdout)
    shared = tmp_path / "team"
    shared.mkdir(mode=0o770)
    shared.chmod(0o770)
    monkeypatch.setenv("DOCTOR_HISTORY", str(shared))
    done = doctor("feedback", report, "--cause", "memory.activations")
    assert done.returncode == 0, done.stderr
    assert (shared / "history.sqlite").stat().st_mode & 0o777 == 0o660
    kept = shared / "incidents" / session
    assert (kept / "incident.yaml").stat().st_mode & 0o777 == 0o660 and kept.stat().st_mode & 0o777 == 0o770
    assert json.loads(doctor("history", "--json").stdout)["place"] == str(shared)


def test_hostile_names_in_a_report_write_nothing_elsewhere(doctor: Doctor, session: str, tmp_path: Path) -> None:
    report = tmp_path / "hostile.json"
    data = json.loads(doctor("sessions", "show", session, "--json").stdout)
    report.write_text(json.dumps(data | {"session": "../../../out"}))
    before = sorted(p.name for p in tmp_path.iterdir())
    done = doctor("feedback", report, "--cause", "memory.activations", "--note", "\x1b[31m; rm -rf /")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    assert [p.name[:8] for p in (state() / "incidents").iterdir()] == ["session-"]
    assert "\x1b" not in doctor("history").stdout
    assert doctor("feedback", report, "--undo").returncode == 0


def test_two_alike_corrections_are_told_to_lean(doctor: Doctor, tmp_path: Path) -> None:
    for number in (1, 2):
        folder = tmp_path / f"exp{number}"
        folder.mkdir()
        (folder / "train.log").write_text(OOM)
        doctor("ask", "why did it die?", "--run", folder, "-q")
        done = doctor("feedback", "last", "--cause", "memory.sequence_too_long")
        assert done.returncode == 0, done.stderr
    assert "twice: memory.sequence_too_long +0.5" in done.stdout
    (tmp_path / "exp3").mkdir()
    (tmp_path / "exp3" / "train.log").write_text(OOM)
    third = json.loads(doctor("ask", "why did it die?", "--run", tmp_path / "exp3", "--json", "-q").stdout)
    assert any("memory.sequence_too_long +0.5" in text for text in third["meta"]["history"]), third["differential"]
