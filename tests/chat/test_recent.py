"""What was diagnosed before, and what lies near: told whatever the files hold, bounded, with nothing followed."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from traindoctor.agent.chat import recent
from traindoctor.agent.chat.recent import LISTED, Presence, Recent, ago, begun, how_many, sessions, within
from traindoctor.agent.chat.recent_places import completions, look_around, meant, shared
from traindoctor.agent.core.events import ToolFinished
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.session import diagnose

from tests.sample import sample
from tests.tui.kept_sessions import HOUR, NOW, a_run, every_kind, keep, leave


def test_sessions_are_listed_newest_first_whatever_they_hold(tmp_path: Path) -> None:
    state, here = every_kind(tmp_path)
    found = list(sessions(state))
    assert [e.status for e in found] == ["confirmed", "unfinished", "unfinished", "likely", "answer", "confirmed",
                                         "of another version", "damaged"]  # fmt: skip
    assert [e.time for e in found] == sorted((e.time for e in found), reverse=True)
    first, asked, left, likely, *_ = found
    assert (first.cause, first.roots, first.questions) == ("loss.fp16_overflow", (str(here / "exp42"),), 1)
    assert (asked.question, asked.waiting) == ("Is rank 3 stuck?", "py_spy pid=123")
    assert (left.question, left.waiting) == ("Why is it slow?", "")
    presence = Presence()
    assert presence.of(first).there and presence.of(first).goes_on
    assert presence.of(likely).there is False and not presence.of(likely).goes_on and likely.opens
    assert not found[-1].opens and not found[-2].opens


def test_a_session_that_was_really_left_is_found(tmp_path: Path) -> None:
    """The database as the checkpointer writes it; its form is not ours."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "train.log").write_text("step 1 loss 2.0\n")
    events = diagnose(Workspace([tmp_path / "run"], live=False), "why is it slow?", state=tmp_path, history=False)
    for event in events:
        if isinstance(event, ToolFinished):
            break
    [entry] = [b for b in begun(tmp_path) if b.question]
    [listed] = [e for e in sessions(tmp_path) if e.status == "unfinished"]
    assert listed.roots == (str(tmp_path / "run"),) and Presence().of(listed).there
    assert entry.question == "why is it slow?" and abs(entry.time - time.time()) < 600
    for _ in events:
        pass
    assert [b.question for b in begun(tmp_path)] == [""], "its report tells the rest"
    assert [e.status for e in sessions(tmp_path)] != ["unfinished"]


def test_a_kept_session_that_waits_again_says_so(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    keep(tmp_path, "s1", 1, None)
    keep(tmp_path, "s1", 1, None)
    leave(tmp_path, "s1", "and now?", "2026-03-04T04:20:00+00:00", [{"tool": "nvidia_smi", "args": {}, "why": ""}])
    leave(tmp_path, "s\x1b[2J", "x" * 9_000, "nonsense")
    (tmp_path / "reports" / "s1" / "roots.json").write_text("[[1]]")
    kept, odd = sorted(sessions(tmp_path), key=lambda e: e.status)
    assert kept.waiting == "nvidia_smi" and kept.questions == 2
    assert len(odd.question) == 2_000 and odd.time == 0.0
    (tmp_path / "sessions.sqlite").write_bytes(b"no database" * 100)
    assert [e.session for e in sessions(tmp_path)] == ["s1"] and list(sessions(tmp_path / "nowhere")) == []


def test_many_sessions_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    text = sample().to_json()
    for n in range(LISTED + 20):
        file = tmp_path / "reports" / f"s{n}.json"
        file.write_text(text if n % 50 == 0 else '{"schema": 1}')
        os.utime(file, (NOW + n, NOW + n))
    found = list(sessions(tmp_path))
    assert len(found) == LISTED and how_many(tmp_path) == LISTED + 20 and found[0].session == f"s{LISTED + 19}"


def test_runs_and_reports_near_are_told_by_their_names(tmp_path: Path) -> None:
    _, here = every_kind(tmp_path)
    (here / "code").mkdir()
    (here / "code" / "config.yaml").write_text("lr: 1")  # settings alone are no run
    (here / "link").symlink_to(tmp_path)
    os.mkfifo(here / "sweeps" / "doctor-report.json")
    found = look_around(here)
    assert [r.path for r in found.runs] == [here / "exp42", here / "sweeps" / "lr3e-4"] and not found.more
    assert found.runs[0].holds == "2 logs, metrics, 1 checkpoint" and found.runs[0].time == NOW - HOUR
    by = {e.status: e for e in found.reports}
    assert by["confirmed"].question == "Why did job 4711 die?" and by["confirmed"].foreign
    assert by["damaged"].file == here / "sweeps" / "doctor-report.json"
    assert not look_around(here, known=frozenset(("20260303-000000-job", "doctor-report"))).reports
    odd = here / "odd" / "doctor-report.json"
    odd.parent.mkdir()
    for held in (
        "[]",
        '{"schema": "traindoctor.report/1", "root_cause": 3}',
        "[" * 100_000,
        "\ud800".encode("utf-8", "surrogatepass").decode("latin1"),
    ):
        odd.write_text(held)
        assert {e.status for e in look_around(odd.parent).reports} <= {"of another version", "damaged"}


def test_a_look_around_ends(tmp_path: Path) -> None:
    for n in range(30):
        a_run(tmp_path / f"run{n}")
    assert look_around(tmp_path, seconds=0.0).more and look_around(tmp_path, wanted=lambda: False).more
    deep = a_run(tmp_path / "a" / "b" / "c" / "d")
    assert deep not in [r.path for r in look_around(tmp_path).runs]
    assert look_around(tmp_path / "nowhere").runs == []


def test_a_dead_server_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are asked; then all others are taken to be silent too."""
    never, asked = threading.Event(), []
    monkeypatch.setattr(recent, "_is_there", lambda root: asked.append(root) or never.wait())
    presence = Presence(seconds=0.01)
    for n in range(10):
        assert presence.of(Recent("s", 0.0, "likely", roots=(f"/mnt/dead{n}",))).there is None
    assert len(asked) == 3
    never.set()
    assert within(1.0, lambda: 1 / 1) == 1.0 and within(1.0, lambda: Path("/nowhere").stat()) is None


def test_ages() -> None:
    said = [ago(NOW - s, NOW) for s in (5, 120, 3 * HOUR, 47 * HOUR, 50 * HOUR, 59 * 24 * HOUR, 1e8, -9999)]
    assert said[:6] == ["now", "2 min ago", "3 h ago", "47 h ago", "2 d ago", "59 d ago"]
    assert said[6].startswith("20") and said[7].startswith("20") and ago(1e30, NOW) == "?"


def test_a_line_is_a_path_or_a_question(tmp_path: Path) -> None:
    a_run(tmp_path / "exp42")
    a_run(tmp_path / "exp43")
    (tmp_path / "exp44 \x1b[31m").mkdir()
    (tmp_path / ".hidden").mkdir()
    assert meant("exp42", tmp_path).path == tmp_path / "exp42"
    assert meant("  ", tmp_path).kind == "nothing" and meant("why?", tmp_path).kind == "question"
    assert meant("is 3/4 of it lost?", tmp_path).kind == "question" and meant("./why", tmp_path).kind == "no path"
    assert "whose home" in meant("~nosuchuser/x", tmp_path).why and meant("/" + "x" * 9_000, tmp_path).why
    assert meant("a/\0", tmp_path).kind == "no path" and meant("/dev/null", tmp_path).kind == "no path"
    offered = completions("ex", tmp_path)
    assert [p.text for p in offered][:2] == ["exp42/", "exp43/"] and len(offered) == 3
    assert shared(offered, "ex") == "exp4" and shared(offered, "exp4") == "exp4"
    assert [p.text for p in completions("exp42/", tmp_path)][-1] == "exp42/trainer_state.json"
    assert [p.text for p in completions(".h", tmp_path)] == [".hidden/"] and completions(
        "~nosuchuser/x", tmp_path
    ) == []
    assert (
        completions("~", tmp_path)[0].text == "~/" and json.dumps([p.folder for p in offered]) == "[true, true, true]"
    )
