"""The door: events in order, durable sessions, approvals, crashes of tools told and survived."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from traindoctor.agent.core.events import ApprovalNeeded, CallStarted, ReportReady, SessionStarted, ToolFinished
from traindoctor.agent.core.report import Sentence
from traindoctor.agent.core.types import Call, Evidence, Risk
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.graph import Context, build_graph
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.session.store import load_report, reports
from traindoctor.agent.tools.tool import Tool, all_tools, clean, finding
from traindoctor.agent.verdict.planner import Diagnosis, Step

LOG = "step 1 loss 2.5\nstep 2 loss 2.4\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n"


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(LOG)
    return folder


@pytest.fixture
def extra_tool(monkeypatch):
    def add(function, risk=Risk.READ, recall=False):
        tool = Tool(function.__name__, function, risk, ("test.*",), recall)
        monkeypatch.setitem(all_tools(), tool.name, tool)
        return tool

    return add


def test_the_stream_begins_with_the_session_and_ends_with_the_report(run, tmp_path):
    events = list(diagnose(Workspace([run]), "why did it die?", state=tmp_path / "state"))
    assert isinstance(events[0], SessionStarted)
    assert isinstance(events[-1], ReportReady)
    assert sum(isinstance(e, CallStarted) for e in events) == sum(isinstance(e, ToolFinished) for e in events) > 0
    report = events[-1].report
    assert report.question == "why did it die?"
    assert report.session == events[0].session
    ids = {e.id for e in report.evidence}
    assert all(set(s.cites) <= ids for s in report.summary)
    assert report == load_report(tmp_path / "state", report.session)
    assert [s.id for s in reports(tmp_path / "state")] == [report.session]


def test_a_crash_of_a_tool_is_told_and_the_rest_goes_on(run, tmp_path, extra_tool):
    def broken(ws: Workspace):
        """Breaks."""
        raise ZeroDivisionError("oops")

    extra_tool(broken, recall=True)
    report = list(diagnose(Workspace([run]), state=tmp_path / "state"))[-1].report
    assert any("bug in doctor" in note for note in report.meta.degraded)
    assert any(c.tool == "broken" and c.outcome == "failed" for c in report.checked)
    assert len(report.checked) > 1


class Scripted:
    """Plans one costly call, then concludes with a true and an invented sentence."""

    def next(self, view):
        if not view.facts.get("test.load") and "load(" not in " ".join(view.done):
            return Step([Call("load")])
        said = [
            Sentence(text="It says 42.", cites=[e.id for e in view.facts.get("test.load")]),
            Sentence(text="It says 43.", cites=[e.id for e in view.facts.get("test.load")]),
        ]
        return Step(diagnosis=Diagnosis("none.insufficient_evidence", [], said))


def start(run, extra_tool, ran, **context):
    from langgraph.checkpoint.memory import InMemorySaver

    def load(ws: Workspace):
        """Loads the machine."""
        ran.append(1)
        return finding("42", [Evidence(key="test.load", value=42, file="x", line=1, text="42")])

    extra_tool(load, risk=Risk.COSTLY)
    graph = build_graph(InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    told: list = []
    return graph, config, Context(Workspace([run]), Scripted(), tell=told.append, **context), told


def test_a_costly_call_waits_for_a_yes_and_then_runs_once(run, extra_tool):
    from langgraph.types import Command

    ran: list[int] = []
    graph, config, context, told = start(run, extra_tool, ran, can_ask=True)
    graph.invoke({"question": ""}, config, context=context)
    assert not ran and any(isinstance(e, ApprovalNeeded) for e in told)
    out = graph.invoke(Command(resume=True), config, context=context)
    assert ran == [1]
    assert [s["text"] for s in out["report"]["summary"]] == ["It says 42."]
    assert any("43" in note for note in out["report"]["meta"]["degraded"])


def test_without_anyone_to_ask_it_is_refused_and_told(run, extra_tool):
    ran: list[int] = []
    graph, config, context, _ = start(run, extra_tool, ran)
    out = graph.invoke({"question": ""}, config, context=context)
    assert not ran
    assert {c["tool"]: c["outcome"] for c in out["report"]["checked"]}["load"] == "not_allowed"


SLOW = """
import sys, time
from pathlib import Path
from traindoctor.agent.session.session import diagnose
from traindoctor.agent.tools.tool import Tool, all_tools, clean
from traindoctor.agent.core.types import Risk
from traindoctor.agent.reading.run.workspace import Workspace
run, state, counts, slow = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4] == "slow"
def make(name, wait):
    def function(ws: Workspace):
        "Counts."
        with counts.open("a") as f: f.write(name + "\\n")
        if wait: time.sleep(600)
        return clean("ok")
    all_tools()[name] = Tool(name, function, Risk.READ, ("test.*",), True)
make("quick", False); make("zz_slow", slow)
for e in diagnose(Workspace([run]), "why?", session="s1", state=state): print(type(e).__name__, flush=True)
"""


def written(state: Path, name: bytes) -> bool:
    """Whether the database holds what a call answered."""
    base = sqlite3.connect(f"file:{next(state.rglob('sessions.sqlite'))}?mode=ro", uri=True)
    with contextlib.closing(base), contextlib.suppress(sqlite3.OperationalError):  # no table yet
        return any(name in value for (value,) in base.execute("select value from writes where channel = 'results'"))
    return False


def test_a_killed_session_runs_only_the_killed_call_again(run, tmp_path):
    counts = tmp_path / "counts"
    command = [sys.executable, "-c", SLOW, str(run), str(tmp_path / "state"), str(counts)]
    child = subprocess.Popen([*command, "slow"], stdout=subprocess.DEVNULL)
    wanted = time.monotonic() + 60
    while not (counts.exists() and {"quick", "zz_slow"} <= set(counts.read_text().split())):
        assert time.monotonic() < wanted and child.poll() is None
        time.sleep(0.05)
    while not written(tmp_path / "state", b"quick"):  # its answer reaches the database while the slow one sleeps
        assert time.monotonic() < wanted and child.poll() is None
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    done = subprocess.run([*command, "quick"], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split()[-1] == "ReportReady"
    assert counts.read_text().split().count("quick") == 1
    assert counts.read_text().split().count("zz_slow") == 2


def test_a_further_question_keeps_what_was_read(run, tmp_path):
    state = tmp_path / "state"
    first = list(diagnose(Workspace([run]), "why?", state=state))
    again = list(diagnose(Workspace([run]), "is it the network?", session=first[0].session, state=state))
    assert not [e for e in again if isinstance(e, CallStarted) and e.call.why == "recall"]
    assert again[-1].report.question == "is it the network?"
    assert len(again[-1].report.checked) >= len(first[-1].report.checked)


def test_an_unwritable_database_costs_durability_not_the_diagnosis(run, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    Path(state / "sessions.sqlite").write_bytes(b"this is no database" * 100)
    report = list(diagnose(Workspace([run]), state=state))[-1].report
    assert any("cannot be resumed" in note for note in report.meta.degraded)


def test_clean_is_not_a_finding(run, tmp_path, extra_tool):
    def nothing(ws: Workspace):
        """Finds nothing."""
        return clean("nothing there")

    extra_tool(nothing, recall=True)
    report = list(diagnose(Workspace([run]), state=tmp_path / "state"))[-1].report
    assert {c.tool: c.outcome for c in report.checked}["nothing"] == "clean"


def test_an_error_of_the_users_own_is_told_where_no_known_failure_explains_it(tmp_path):
    (tmp_path / "run").mkdir()
    raised = 'Traceback (most recent call last):\n  File "t.py", line 2, in <module>\n    raise ValueError(text)\n'
    (tmp_path / "run" / "train.log").write_text(f"step 1 loss 2.0\n{raised}ValueError: expected 3 channels, got 4\n")
    asked = diagnose(Workspace([tmp_path / "run"]), "why did it stop?", state=tmp_path / "state")
    report = next(e.report for e in asked if isinstance(e, ReportReady))
    assert report.status == "insufficient_evidence"
    assert "it ended by “ValueError: expected 3 channels, got 4”" in report.summary[0].text and report.summary[0].cites
