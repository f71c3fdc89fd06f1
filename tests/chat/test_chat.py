"""`doctor chat`: questions one a line in one session; commands, resuming, stopping, and what goes wrong in between."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from traindoctor.agent.chat import chat_export
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.events import Event, SessionStarted
from traindoctor.agent.core.report import Report, RootCause
from traindoctor.agent.doors.cli import main
from traindoctor.agent.session.store import (
    load_report,
    newest,
    reports,
    save_report,
    session_roots,
    turns,
    usable_state,
)

INCIDENT = Path(__file__).resolve().parents[2] / "evals" / "incidents" / "dist-vlm-bucket-sizes-differ" / "files"
Talk = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A copy of an incident, so that it can be taken away."""
    return Path(shutil.copytree(INCIDENT, tmp_path / "run"))


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """Pipe lines into a chat: `talk("why?", "/quit", path=run)`."""

    def held(*lines: str, path: Path | None = None, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = main(["chat", *([str(path)] if path else []), "--offline", "--plain", *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    return held


def test_a_conversation_in_one_session(run: Path, talk: Talk) -> None:
    code, out, err = talk("why does it hang?", "", "why?", "check rank 1", "what if lr=1e-6", path=run)
    assert code == 0 and "4 files, no model" in err
    assert (
        "cause: dist.unused_parameters" in out and "rank1.log:1" in out and "learning_rate = 1e-06 (now 1e-05)" in out
    )
    state = usable_state()[0]
    (entry,) = reports(state)
    assert entry.cause == "dist.unused_parameters", "an answer does not take the diagnosis's place"
    assert [r.question for r in turns(state, entry.id)] == [
        "why does it hang?", "why?", "check rank 1", "what if lr=1e-6",
    ]  # fmt: skip
    answers = out.partition("> why?")[2]
    assert "scan_logs" not in answers, "a follow-up shows its own checks"
    assert "checked: found | look_at_rank" in answers


def test_resume_goes_on_with_the_evidence(run: Path, talk: Talk, tmp_path: Path) -> None:
    talk("why does it hang?", path=run)
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.log").write_text("step 1 loss 2.0\n")
    talk("is it fine?", path=other)
    code, out, err = talk("are you sure?", path=run, options=("--resume",))
    assert code == 0 and "Going on with session" in err and "asked last: why does it hang?" in err
    assert "answer:" in out and "dist.unused_parameters" in out
    code, out, _ = talk("what should I do?", options=("--session", str(newest(usable_state()[0], run))))
    assert code == 0 and "what to do: 1." in out, "the run is where the session was"


def test_resume_without_a_session_is_one_line(run: Path, talk: Talk) -> None:
    code, _, err = talk("why?", path=run, options=("--resume",))
    assert code == 2 and err.startswith("doctor: no session") and err.count("\n") == 1


def test_a_run_that_is_gone_is_one_line(run: Path, talk: Talk) -> None:
    talk("why does it hang?", path=run)
    shutil.rmtree(run)
    code, _, err = talk("why?", options=("--resume",))
    assert code == 2 and "is gone" in err and "with PATH" in err and err.count("\n") == 1


def test_a_link_to_a_run_is_that_run(run: Path, talk: Talk, tmp_path: Path) -> None:
    link = tmp_path / "latest"
    link.symlink_to(run)
    for first, then in ((run, link), (link, run)):
        talk("why does it hang?", path=first)
        name = newest(usable_state()[0])
        code, _, err = talk("why?", path=then, options=("--resume",))
        assert code == 0 and f"Going on with session {name}" in err


@pytest.mark.parametrize("name", ["nope", "..", ".", "../../x", "x/y", "s" * 300, "a\x1b[2Jb", "\udce9", "ü" * 80])
def test_no_typo_begins_a_session(run: Path, talk: Talk, name: str) -> None:
    state = usable_state()[0]
    before = sorted(state.rglob("*"))
    code, _, err = talk("why?", path=run, options=("--session", name))
    assert code == 2 and err.startswith("doctor: no session '") and "`doctor sessions` lists them" in err
    assert err.count("\n") == 1 and "\x1b" not in err and sorted(state.rglob("*")) == before


def test_a_home_that_is_nobodys_is_one_line(talk: Talk) -> None:
    code, _, err = talk("why?", path=Path("~nosuchuser/x"), options=("--resume",))
    assert code == 2 and "whose home" in err and err.count("\n") == 1


def test_a_run_deleted_underneath_ends_no_conversation(run: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lines(io.StringIO):
        def __iter__(self) -> Iterator[str]:  # type: ignore[override]
            yield "why does it hang?\n"
            shutil.rmtree(run)
            yield from ("show rank0.log:2\n", "check rank 1\n", "why?\n")

    monkeypatch.setattr(io, "StringIO", lambda _text: Lines())
    code, out, _ = talk(path=run)
    assert code == 0 and "Traceback" not in out and out.count("status: an answer") == 3


def test_commands(run: Path, talk: Talk, tmp_path: Path) -> None:
    page, data = tmp_path / "talk.md", tmp_path / "talk.json"
    code, out, _ = talk(
        "/report", "/session", "/export", "why does it hang?", "why?", "/report", "/session", f"/export {page}",
        f"/export {page}", f"/export {data}", f"/export {tmp_path}/no/such.md", "/nonsense", "/help", "/quit", "never asked",
        path=run,
    )  # fmt: skip
    assert code == 0 and "No diagnosis yet" in out and "Nothing asked yet" in out and "Say where to" in out
    assert out.count("cause: dist.unused_parameters") == 2 and "\nanswer: " in out and "doctor chat --session" in out
    assert (
        "exists already" in out and "no command /nonsense" in out and "/export FILE" in out and "never asked" not in out
    )
    assert page.read_text().count("Asked:") == 2
    assert [r["question"] for r in json.loads(data.read_text())] == ["why does it hang?", "why?"]


def test_an_export_that_cannot_be_written_costs_a_line(run: Path, talk: Talk, tmp_path: Path) -> None:
    """Nor does a name that can be none, or one in no form that is known; none of them leaves an empty file."""
    names = (
        f"{tmp_path}/no/such.md", "~nosuchuser/x.md", f"{tmp_path}/a\0.md", f"{tmp_path}/x.txt", f"{tmp_path}/bare",
    )  # fmt: skip
    code, out, err = talk("why does it hang?", *(f"/export {name}" for name in names), "why?", path=run)
    assert code == 0 and err.count("doctor: ") == len(names) and "Traceback" not in err
    assert "whose home" in err and "a NUL" in err and "no form .txt" in err and "without a suffix" in err
    assert "> why?" in out and out.count("status:") == 2 and [p.name for p in tmp_path.iterdir()] == ["run"]


def test_what_cannot_be_written_as_text_leaves_no_file(run, talk, tmp_path, monkeypatch):
    monkeypatch.setattr(Report, "to_json", lambda self: 1 / 0, raising=True)
    with pytest.raises(ZeroDivisionError):
        chat_export.exported([Report(status="answer", root_cause=RootCause(id=None))], ".json")
    monkeypatch.undo()
    half = Report(status="answer", question="w\udce9?", root_cause=RootCause(id=None, title="w\udce9"))
    assert b"w?" in chat_export.exported([half], ".md")


def test_secrets_are_in_no_export(run: Path, talk: Talk, tmp_path: Path) -> None:
    key = "hf_" + "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zAbC"
    with (run / "rank0.log").open("a") as log:
        log.write(f"HF_TOKEN={key}\n{key}\n")
    last = len((run / "rank0.log").read_text().splitlines())
    page, data = tmp_path / "talk.MD", tmp_path / "talk.JSON"
    _, out, _ = talk(
        "why does it hang?", f"show rank0.log:{last}", f"show rank0.log:{last - 1}", f"/export {page}",
        f"/export {data}", path=run,
    )  # fmt: skip
    assert key in out, "the terminal is the user's own"
    for text in (page.read_text(), data.read_text()):
        assert key not in text and key.replace("_", "\\_") not in text and "<SECRET:" in text.replace("\\", "")
    found = [Report.model_validate(r) for r in json.loads(data.read_text())]
    assert found[0].root_cause.id == "dist.unused_parameters" and found[1].evidence, "it can be read again"


def test_ctrl_c_stops_the_answer_and_not_the_conversation(run, talk, monkeypatch):
    from traindoctor.agent.session import session

    real, asked = session.diagnose, []

    def interrupted(ws: object, question: str, **options: object) -> Iterator[Event]:
        asked.append(question)
        if len(asked) == 1:
            yield SessionStarted("s1")
            raise KeyboardInterrupt
        yield from real(ws, question, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(session, "diagnose", interrupted)
    code, out, err = talk("why does it hang?", "why does it hang?", path=run)
    assert code == 0 and "Stopped" in err and asked == ["why does it hang?"] * 2
    assert "cause: dist.unused_parameters" in out
    assert [e.id for e in reports(usable_state()[0])] == ["s1"], "the session goes on"


def test_questions_and_a_log_cannot_both_come_from_standard_input(talk: Talk) -> None:
    code, _, err = talk("why?", path=Path("-"))
    assert code == 2 and "standard input" in err


def test_hostile_lines_come_out_inert(run: Path, talk: Talk) -> None:
    code, out, err = talk("\x1b[31mwhy not \x1b]0;title\x07?", "/\x1b[2J", "\x00", "show \x1b[31m.log:1", path=run)
    assert code == 0 and "\x1b" not in out + err and "\x07" not in out + err


def test_no_stdin(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert main(["chat", str(run), "--offline", "--quiet"]) == 0 and capsys.readouterr().err == ""


def test_every_report_of_a_session_can_be_shown(run: Path, talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    talk("why does it hang?", "why?", path=run)
    name = reports(usable_state()[0])[0].id
    assert main(["sessions", "show", name, "--plain"]) == 0 and capsys.readouterr().out.count("status:") == 1
    assert main(["sessions", "show", name, "--plain", "--all"]) == 0
    assert capsys.readouterr().out.count("status:") == 2


def kept(state: Path, session: str, status: str, root: str) -> None:
    report = Report.model_validate({
        "session": session, "status": status, "root_cause": RootCause(id=None if status == "answer" else "none.healthy"),
        "runs": [{"id": "r1", "root": root}, {"id": "r2", "root": root, "good": True}],
    })  # fmt: skip
    save_report(state, report)


def test_roots_of_a_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    kept(tmp_path / "state", "s1", "healthy", "here")
    monkeypatch.chdir("/")
    here = tmp_path / "here"
    assert session_roots(tmp_path / "state", "s1") == ([here], [here]), "also from another folder"
    kept(tmp_path / "state", "s2", "healthy", "-")
    with pytest.raises(UsageError, match="standard input"):
        session_roots(tmp_path / "state", "s2")
    with pytest.raises(UsageError, match="no session"):
        session_roots(tmp_path / "state", "../s1/x")
    here.rmdir()
    with pytest.raises(UsageError, match="is gone"):
        session_roots(tmp_path / "state", "s1")


def test_a_session_of_an_older_version(tmp_path: Path) -> None:
    kept(tmp_path, "s1", "healthy", "/")
    (tmp_path / "reports" / "s1.json").write_text('{"schema": "traindoctor.report/0"}')
    (tmp_path / "reports" / "s1" / "0001.json").write_text("{")
    with pytest.raises(UsageError, match="another version"):
        load_report(tmp_path, "s1")
    assert turns(tmp_path, "s1") == [] and newest(tmp_path) is None
    kept(tmp_path, "s1", "answer", "/")
    assert load_report(tmp_path, "s1").status == "answer"
