"""Kept sessions: which there are, what may name one, what an answer shows of the checks of its session."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.events import CallStarted, ReportReady, SessionStarted, ToolFinished
from traindoctor.agent.core.report import Checked, Report, RootCause
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session import session as session_module
from traindoctor.agent.session import store
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.session.store import (
    ROOTS,
    begin,
    checked_session,
    is_kept,
    load_report,
    newest,
    reports,
    save_report,
    session_roots,
    usable_state,
    with_new_checks,
)


def report(session: str = "s1", status: str = "answer", *checked: tuple[str, str, str]) -> Report:
    rows = [Checked.model_validate({"tool": t, "outcome": o, "why": w}) for t, o, w in checked]
    return Report.model_validate({
        "session": session, "status": status, "checked": rows,
        "root_cause": RootCause(id=None if status == "answer" else "none.healthy"),
    })  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text("step 1 loss 2.5\nstep 2 loss 2.4\n")
    return folder


def test_a_finished_and_a_begun_session_can_be_gone_on_with(run: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = list(diagnose(Workspace([run]), "is it fine?", state=state))[-1]
    assert isinstance(made, ReportReady)
    assert checked_session(state, made.report.session) == made.report.session
    events = diagnose(Workspace([run]), "is it fine?", state=state)
    begun = next(events)
    assert isinstance(begun, SessionStarted)
    while not isinstance(next(events), CallStarted):
        pass
    events.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert checked_session(state, begun.session) == begun.session
    with pytest.raises(UsageError, match="was left before its report"):
        load_report(state, begun.session)
    assert session_roots(state, begun.session) == ([run], []), "it finds its run by itself"
    assert len(reports(state)) == 1, "what is unfinished is listed among no reports"
    with pytest.raises(UsageError, match=f"is about {run}"):
        list(diagnose(Workspace([tmp_path]), session=begun.session, state=state))
    (state / "reports" / begun.session / ROOTS).unlink()  # of an earlier version
    assert not is_kept(state, begun.session)
    finished = list(diagnose(Workspace([run]), session=begun.session, state=state))[-1]
    assert isinstance(finished, ReportReady) and finished.report.question == "is it fine?"
    assert session_roots(state, begun.session) == ([run], [])


@given(st.text(max_size=100))
@example("..")
@example("../reports/s1")
@example("s1.json")
@example("s1\n")
@example("\x1b[2J")
@example("\ud800")
def test_nothing_but_an_id_names_a_session(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    state = tmp_path_factory.getbasetemp() / "named"
    if not state.exists():
        (state / "reports").mkdir(parents=True)
        save_report(state, report("s1", "healthy"))
    if name == "s1":
        return
    with pytest.raises(UsageError) as caught:
        checked_session(state, name)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["..", ".", "", "../../x", "/etc/x", ".hidden", "s" * 300, "é" * 100, "a\0b", "...."])
def test_a_report_is_kept_among_the_reports_whatever_its_session_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / "state" / "reports").mkdir(parents=True)
    save_report(tmp_path / "state", report(name, "healthy"))
    kept = sorted(p.relative_to(tmp_path) for p in tmp_path.rglob("*.json"))
    assert len(kept) == 3
    assert all(p.parts[:2] == ("state", "reports") and len(p.parts) in (3, 4) for p in kept)
    assert load_report(tmp_path / "state", name).session == name


@pytest.mark.parametrize("content", [b"", b"no database" * 100])
def test_a_database_that_is_none_knows_no_session(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sessions.sqlite").write_bytes(content)
    with pytest.raises(UsageError, match="no session"):
        checked_session(tmp_path, "s1")


def test_looking_for_a_session_waits_for_no_writer(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "sessions.sqlite", isolation_level=None)) as base:
        base.execute("PRAGMA journal_mode=WAL")
        base.execute("CREATE TABLE checkpoints (thread_id TEXT)")
        base.execute("INSERT INTO checkpoints VALUES ('s1')")
        base.execute("BEGIN IMMEDIATE")
        assert checked_session(tmp_path, "s1") == "s1"


def test_an_answer_shows_its_own_checks() -> None:
    broken, denied = ("read_metrics", "failed", "no such file"), ("run_nccl_test", "not_allowed", "refused")
    first = report("s1", "healthy", ("scan_logs", "finding", "died"), broken)
    again = report("s1", "answer", ("scan_logs", "finding", "died"), broken, broken, denied)
    assert [c.tool for c in with_new_checks(again, [first]).checked] == ["read_metrics", "run_nccl_test"]
    assert with_new_checks(report("s1", "answer", broken), [first]).checked == []
    assert len(again.checked) == 4, "the report itself keeps all"
    assert with_new_checks(again, []) is again
    assert len(with_new_checks(report("s1", "healthy", broken), [first]).checked) == 1


@pytest.mark.parametrize("how", ["open to others", "a link", "sound"])
def test_a_folder_that_somebody_prepared_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    usual = tmp_path / f"traindoctor-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o777)
    if how == "a link":
        usual.symlink_to(elsewhere)
    else:
        usual.mkdir()
        usual.chmod(0o777 if how == "open to others" else 0o700)
    blocked = tmp_path / "file"
    blocked.write_text("")
    folder, why = usable_state(blocked / "state")
    assert why and (folder == usual) is (how == "sound") and folder.resolve() != elsewhere
    assert folder.stat().st_mode & 0o077 == 0 and (folder / "reports").is_dir()


def test_two_doctors_are_not_at_work_on_one_session(run: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = diagnose(Workspace([run]), "is it fine?", state=state)
    begun = next(first)
    assert isinstance(begun, SessionStarted)
    next(first)
    with pytest.raises(UsageError, match="another doctor is at work"):
        list(diagnose(Workspace([run]), session=begun.session, state=state))
    list(first)
    assert isinstance(list(diagnose(Workspace([run]), "why?", session=begun.session, state=state))[-1], ReportReady)


def test_a_database_that_another_program_holds_is_told_as_such(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BUSY_MS", 50)
    state = tmp_path / "state"
    list(diagnose(Workspace([run]), "is it fine?", state=state))
    with closing(sqlite3.connect(state / "sessions.sqlite", isolation_level=None)) as base:
        base.execute("BEGIN IMMEDIATE")
        last = list(diagnose(Workspace([run]), "is it fine?", state=state))[-1]
        assert isinstance(last, ReportReady) and "cannot be resumed" in " ".join(last.report.meta.degraded)


@pytest.mark.parametrize("kept", [0, 1, 4])
def test_a_disk_that_is_full_in_the_middle_costs_no_verdict(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    from langgraph.checkpoint.sqlite import SqliteSaver

    state, real, puts = tmp_path / "state", SqliteSaver.put, list[Any]()
    first = list(diagnose(Workspace([run]), "is it fine?", state=state))[-1]
    assert isinstance(first, ReportReady)

    def put(self: Any, *given: Any) -> Any:
        puts.append(given)
        if len(puts) > kept:
            raise sqlite3.OperationalError("database or disk is full")
        return real(self, *given)

    def unkept(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SqliteSaver, "put", put)
    monkeypatch.setattr(session_module, "save_report", unkept)
    events = list(diagnose(Workspace([run]), "is it fine?", state=state))
    last = events[-1]
    assert isinstance(last, ReportReady) and len(puts) == kept + 1
    assert last.report.root_cause == first.report.root_cause and last.report.status == first.report.status
    assert last.report.question == "is it fine?"
    told = " ".join(last.report.meta.degraded)
    assert "disk is full" in told and "could not be kept (No space left on device)" in told
    made = [e.call.identity for e in events if isinstance(e, ToolFinished)]
    assert len(made) == len(set(made)), "no check that was kept is made again"
    puts.clear()
    *_, last = diagnose(Workspace([run]), "what was checked?", session=first.report.session, state=state)
    assert isinstance(last, ReportReady) and last.report.evidence, "it goes on with the evidence that was kept"


def test_the_newest_session_may_be_one_that_was_left(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    save_report(tmp_path, report("s1", "healthy"))
    begin(tmp_path, "s2", [tmp_path / "run"], [tmp_path / "good"])
    for name, when in (("s1.json", 10), ("s2/roots.json", 20)):
        os.utime(tmp_path / "reports" / name, (when, when))
    assert newest(tmp_path) == "s1" and newest(tmp_path, left=True) == "s2"
    assert newest(tmp_path, tmp_path / "run") is None and newest(tmp_path, tmp_path / "run", left=True) == "s2"
    assert newest(tmp_path, tmp_path / "good", left=True) is None
    save_report(tmp_path, report("s2", "healthy"))
    os.utime(tmp_path / "reports" / "s2.json", (5, 5))
    assert newest(tmp_path, left=True) == "s1", "with a report it is as old as that"


def test_what_stands_in_for_a_state_folder_is_told_in_each_report(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("DOCTOR_STATE", str(tmp_path / "file" / "state"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    state, word = usable_state()
    assert "cannot be written" in word and usable_state() == (state, word)
    made = list(diagnose(Workspace([run]), "is it fine?", state=state))[-1]
    assert isinstance(made, ReportReady) and word in made.report.meta.degraded
