"""Calls above the allowed risk: who decides, what is remembered, what is asked for at all, and a question left open."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.chat.consent import Asked, Consent, Decision
from traindoctor.agent.core.errors import Stopped
from traindoctor.agent.core.events import ReportReady, ToolFinished
from traindoctor.agent.core.shell import Completed
from traindoctor.agent.core.types import Call, Risk
from traindoctor.agent.doors.commands import output
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.history.team import Team
from traindoctor.agent.session.session import diagnose, unfinished
from traindoctor.agent.session.state import State, view_of
from traindoctor.agent.tools.tool import Tool, all_tools, clean
from traindoctor.agent.verdict.planner import Offline

POKE, PROD, SAY = Call("poke", why="it hangs"), Call("prod"), Call("say", {"words": "a"})
HANGS = "rank 0 waits in all_reduce\nWatchdog caught collective operation timeout: SeqNum=7, OpType=ALLREDUCE\n"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two checks that attach and one whose argument says what is run; the names of those made, in order."""
    calls: list[str] = []

    def poke(ws: Workspace):
        """Poke the ranks."""
        calls.append("poke")
        return clean("poked")

    def prod(ws: Workspace):
        """Prod the ranks."""
        calls.append("prod")
        return clean("prodded")

    def say(ws: Workspace, words: str):
        """Say something to the ranks."""
        calls.append(f"say {words}")
        return clean("said")

    for function in (poke, prod, say):
        tool = Tool(function.__name__, function, Risk.PROBE, ("test.*",), False)
        monkeypatch.setitem(all_tools(), tool.name, tool)
    return calls


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run that hangs."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.log").write_text(HANGS)
    return folder


def answering(*given: dict[str, Decision]) -> tuple[Consent, list[list[str]]]:
    """A consent that is answered at once, each question with the next of these by tool; the calls it was shown."""
    shown: list[list[str]] = []

    def show(asked: list[Asked]) -> None:
        shown.append([a.call.identity for a in asked])
        by_tool = given[len(shown) - 1]
        consent.answer({a.call.identity: by_tool[a.call.tool] for a in asked if a.call.tool in by_tool})

    consent = Consent(show, threading.Event())
    return consent, shown


def test_what_is_remembered_and_for_what(made: list[str]) -> None:
    consent, shown = answering(
        {"poke": Decision.ONCE, "prod": Decision.NEVER}, {"poke": Decision.SESSION}, {"say": Decision.SESSION}, {}, {}
    )
    assert consent.approve((POKE, PROD)) == ["poke()"]
    assert consent.approve((POKE, PROD)) == ["poke()"]  # never is not asked again; once is
    assert shown == [["poke()", "prod()"], ["poke()"]]
    assert consent.approve((POKE, Call("poke"))) == ["poke()"] and len(shown) == 2
    assert consent.approve((SAY,)) == ["say(words='a')"]
    assert consent.approve((SAY, Call("say", {"words": "b"}))) == ["say(words='a')"]  # b is another thing to run
    assert shown[3:] == [["say(words='b')"]]
    told = consent.describe()
    assert "poke: allowed until this chat is closed" in told and "prod: refused until this chat is closed" in told
    consent.forget()
    assert consent.describe() == [] and consent.approve((POKE,)) == [] and len(shown) == 5


def test_an_answer_without_a_question_is_nothing(made: list[str]) -> None:
    consent, _ = answering({})
    consent.answer({"poke()": Decision.SESSION})
    assert consent.describe() == [] and consent.approve((POKE,)) == []


def test_two_asked_one_allowed_the_other_told_as_refused(made: list[str], run: Path, tmp_path: Path) -> None:
    consent, _ = answering({"poke": Decision.ONCE})
    events = diagnose(Workspace([run]), calls=[POKE, PROD], approve=consent.approve, state=tmp_path / "state")
    outcomes = {e.call.tool: e.result.outcome for e in events if isinstance(e, ToolFinished)}
    assert outcomes == {"poke": "clean", "prod": "not_allowed"} and made == ["poke"]


def test_a_question_that_is_left_open_is_asked_again(made: list[str], run: Path, tmp_path: Path) -> None:
    shown, stop = threading.Event(), threading.Event()
    consent = Consent(lambda asked: shown.set(), stop)
    state, events, ended = tmp_path / "state", [], []

    def work() -> None:
        try:
            for event in diagnose(
                Workspace([run]), calls=[POKE], approve=consent.until(stop), state=state, session="s1", stop=stop
            ):
                events.append(event)
        except Stopped as e:
            ended.append(e)

    before = set(threading.enumerate())  # another test may have left a check that hangs
    thread = threading.Thread(target=work)
    thread.start()
    assert shown.wait(20) and [a.call for a in consent.waiting] == [POKE]
    stop.set()
    thread.join(20)
    assert ended and not made
    until(lambda: not consent.waiting and not set(threading.enumerate()) - before)
    consent.answer({"poke()": Decision.ONCE})  # too late: nobody waits
    left = unfinished(state, "s1")
    assert left is not None and left.calls == (POKE,)
    again, asked = answering({"poke": Decision.ONCE})
    told = list(diagnose(Workspace([run]), session="s1", calls=[POKE], approve=again.approve, state=state))
    assert asked == [["poke()"]] and made == ["poke"] and isinstance(told[-1], ReportReady)


def test_an_answer_to_the_question_before_decides_nothing_of_the_next(made: list[str]) -> None:
    def show(asked: list[Asked]) -> None:
        consent.answer({"poke()": Decision.SESSION})  # of a dialog that was left on the screen
        assert consent.waiting == asked
        consent.answer({"prod()": Decision.ONCE})

    consent = Consent(show, threading.Event())
    assert consent.approve((PROD,)) == ["prod()"] and len(consent.describe()) == 1


def until(holds: Callable[[], bool]) -> None:
    """Wait for other threads."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def view(
    run: Path,
    *results: dict,
    question: str = "it hangs, why?",
    allowed: Risk = Risk.READ,
    askable: bool = True,
    pids: tuple[int, ...] = (1,),
    live: bool = True,
):
    """What the planner sees after these results."""
    state: State = {"question": question, "results": list(results)}  # pyright: ignore
    return view_of(state, Workspace([run], pids=pids, live=live), allowed, Team(), askable)


def result(call: Call, outcome: str = "clean") -> dict:
    """A result as the session keeps it."""
    kept = {"tool": call.tool, "args": call.args, "why": ""}
    return {"call": kept, "outcome": outcome, "summary": "", "text": "", "cut": 0, "evidence": [], "seconds": 0.0}


def unasked(run: Path, question: str) -> list[dict]:
    """The results of all that the offline planner plans where nobody can be asked; none of them tells anything."""
    kept: list[dict] = []
    while step := Offline().next(view(run, *kept, question=question, askable=False)).calls:
        kept += map(result, step)
        assert len(kept) < 99
    assert kept and all(all_tools()[r["call"]["tool"]].risk is Risk.READ for r in kept)
    return kept


def refused(call: Call) -> dict:
    """The result of a call that somebody said no to."""
    return result(Call(call.tool, {**call.args, "__refused__": "refused"}), "not_allowed")


def test_the_offline_planner_asks_for_what_may_settle_it_once(run: Path) -> None:
    slow = "mlx5 port of InfiniBand flaps: ibstat says Polling, RDMA retries exceeded, link down, GID wrong. Is the IB link broken?"
    known = unasked(run, slow)

    def then(*more: dict, **how: object) -> list[Call]:
        return Offline().next(view(run, *known, *more, question=slow, **how)).calls

    assert then(live=False, pids=()) == []  # a run that is not here
    (first,) = then()
    assert first.tool == "dump_stacks" and "you named processes" in first.why
    (second,) = then(refused(first))
    assert second == Call("nccl_test", why="tells dist.ib_link apart, and nothing that may be made unasked settles it")
    assert then(pids=()) == [second] and then(refused(first), refused(second)) == []
    assert then(result(first), result(second)) == []
    (unasked_now,) = then(result(first), allowed=Risk.COSTLY, askable=False)
    assert unasked_now.tool == "nccl_test" and "unasked" not in unasked_now.why


def test_a_diagnosis_asks_once_and_ends_without_what_was_refused(run: Path, tmp_path: Path) -> None:
    class Bare:
        def run(self, argv, timeout=10.0, env=None, cwd=None) -> Completed:
            return Completed(tuple(argv), None, "", "x: not installed")

    consent, shown = answering({}, {})
    ws = Workspace([run], shell=Bare(), pids=(1,))
    events = list(diagnose(ws, "it hangs, why?", approve=consent.approve, state=tmp_path / "state"))
    assert shown == [["dump_stacks()"]] and isinstance(events[-1], ReportReady)
    assert [c.outcome for c in events[-1].report.checked if c.tool == "dump_stacks"] == ["not_allowed"]


def test_a_refused_call_may_be_made_once_it_is_allowed(run: Path) -> None:
    refused = result(Call("dump_stacks", {"__refused__": "no"}), "not_allowed")
    assert "dump_stacks()" in view(run, refused).done
    assert "dump_stacks()" not in view(run, refused, allowed=Risk.PROBE).done


def test_the_question_at_a_terminal_shows_what_would_run(made, run, monkeypatch, capsys):
    answers = iter(["y", "", "yes"])
    monkeypatch.setattr("traindoctor.agent.doors.commands.output.answer", lambda prompt: next(answers))
    hostile = Call("storage_speed", {"path": str(run)}, why="slow \x1b[31mdisk")
    allowed = output.approve((hostile, POKE, PROD), Workspace([run], live=True))
    assert allowed == [hostile.identity, "prod()"]
    told = capsys.readouterr().err
    assert "why: slow \\x1b[31mdisk" in told and "\x1b" not in told
    assert f"traindoctor.agent.jobs.probes.storage {run.resolve()} 256 20 500" in told
    assert "puts load on this machine" in told and "why: it hangs" in told


def test_what_is_shown_before_the_answer(made: list[str]) -> None:
    seen: list[list[Asked]] = []
    consent = Consent(lambda asked: (seen.append(asked), consent.answer({})), threading.Event())  # pyright: ignore
    assert consent.approve((POKE,)) == []
    asked = seen[0][0]
    assert (asked.title, asked.risk, asked.whole) == ("Poke the ranks.", Risk.PROBE, True)
    assert "attaches" in asked.means and "cannot be told" in asked.rehearsed.note
