"""The one door: a workspace and a question go in, a stream of events comes out, the last is the report.

Sessions are durable: each step is on disk before the next begins, a killed session goes on where it was, and
`session=` continues a finished one with a further question on the same evidence.
"""

from __future__ import annotations

import fcntl
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..core.errors import Stopped, UsageError
from ..core.events import Event, ReportReady, SessionStarted, Spent
from ..core.report import Report, RunSummary
from ..core.types import Call, Risk
from ..reading.run.workspace import Workspace
from .store import DATABASE, begin, is_kept, new_session, save_report, session_roots, usable_state

if TYPE_CHECKING:
    from ..llm.model_settings import ModelSettings
    from ..verdict.planner import Planner
    from .history.team import Team


# ----------
# One process at a time goes on with a session: two at once would each plan from what the other has not written yet.


@contextmanager
def alone(state: Path, session: str) -> Iterator[None]:
    """Have a session for oneself; a kill gives it back. Where the file system knows no locks, nobody is kept out.

    Args:
        session: an id that is in use already: its folder is what is locked, so that no file is left behind.

    Raises:
        UsageError: another process is at work on it.
    """
    try:
        folder = os.open(state / "reports" / Path(session).name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a NUL, or nothing is kept of it
        yield
        return
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"another doctor is at work on session {session}", "ask again when it is done, or begin a new session"
            ) from None
        except OSError:  # no locks here
            pass
        yield
    finally:
        os.close(folder)


# ----------

Approve = Callable[[tuple[Call, ...]], bool | Collection[str]]  # all or none of them, or the identities of some
LOOK = 0.05  # seconds between two looks whether somebody has stopped a diagnosis
CORES = os.cpu_count() or 2
REMEMBERING = 30.0  # seconds that an entry in the team's history may take
STEPS = 400  # of the graph, beyond every bound of a planner's own


def diagnose(
    workspace: Workspace,
    question: str = "",
    *,
    session: str | None = None,
    allow: Risk = Risk.READ,
    approve: Approve | None = None,
    state: Path | None = None,
    intent: str = "",
    model: ModelSettings | None = None,
    notes: Sequence[str] = (),
    history: bool = True,
    calls: Sequence[Call] = (),
    watched: bool = False,
    stop: threading.Event | None = None,
) -> Iterator[Event]:
    """Diagnose a run.

    Args:
        session: go on with this session: unfinished work is finished, a finished one takes the new question.
        allow: calls up to this risk run unasked.
        approve: asked about calls above it; without it they are refused.
        state: folder of the session database and the reports.
        intent: what is asked (`preflight`), where the question's words are not to decide it.
        model: the model that plans; without one, or where it fails, the offline planner does, and nothing is sent.
        notes: what limits the diagnosis from the start; told in the report.
        history: whether earlier diagnoses of this team bear on this one, and it is kept among them.
        calls: checks that the user names: they are made, and told without a diagnosis.
        watched: also tell how the hypotheses stand before each step.
        stop: ends the diagnosis when it is set. What was found so far is kept; the session can be gone on with.

    Yields:
        events; the last is `ReportReady`.

    Raises:
        Stopped: `stop` was set.
    """
    began = time.perf_counter()
    question = _whole(question)
    folder, degraded = usable_state(state)
    name = session or new_session()
    yield SessionStarted(name)
    values: dict[str, Any] = {}
    told = [*notes, degraded] if degraded else list(notes)
    _same_run(folder, name, workspace)
    _begin(folder, name, workspace, told)
    team = _team(folder, name, told) if history else None
    order = _Order(workspace, question, name, allow, approve, folder, told, intent, model, team, tuple(calls), watched)
    with alone(folder, name):
        yield from _events(order, values, stop or threading.Event())
    report = _complete(Report.model_validate(values["report"]), order)
    report.question = str(values.get("question", question))  # of a session that was left: what it was asked then
    if team is not None:
        _remember(team, report, values, order)
    report.meta.seconds = round(time.perf_counter() - began, 3)
    try:
        save_report(folder, report)
    except OSError as e:
        report.meta.degraded.append(f"this report could not be kept ({e.strerror or e}): it is here alone")
    yield ReportReady(report)


def _whole(text: str) -> str:
    """A text that can be kept and sent: a terminal in another encoding hands over halves of characters."""
    return text.encode("utf-8", "replace").decode()


def _begin(folder: Path, session: str, workspace: Workspace, notes: list[str]) -> None:
    """Keep where the run is, before anything can go wrong. Where that fails the diagnosis goes on, with a word."""
    try:
        begin(folder, session, workspace.roots, workspace.good)
    except OSError as e:
        notes.append(f"a session that is left now will have to be told where its run is ({e.strerror or e})")


def _same_run(folder: Path, session: str, workspace: Workspace) -> None:
    """A session goes on with its run alone: what was read of one proves nothing about another.

    Raises:
        UsageError: the session is about another run.
    """
    if not is_kept(folder, session):
        return
    try:
        before, _ = session_roots(folder, session)
    except UsageError:
        return  # it is gone, so this may be where it is now
    now = {r.resolve() for r in workspace.roots}
    if before and now and {r.resolve() for r in before} != now:
        named = ", ".join(map(str, before))
        raise UsageError(f"session {session} is about {named}", "leave --run out, or ask without --session")


def first_request(
    workspace: Workspace,
    question: str,
    model: ModelSettings,
    *,
    session: str | None = None,
    allow: Risk = Risk.READ,
    state: Path | None = None,
) -> str:
    """The first request as a model would be sent it, as JSON. Checks run as for a diagnosis; nothing is sent or kept.

    Args:
        session: an earlier session that the question would go on with.
    """
    import json
    import shutil
    import tempfile

    from ..llm.llm_planner import Showing

    question = _whole(question)

    with tempfile.TemporaryDirectory(prefix="doctor-") as scratch:
        if session is not None and (database := usable_state(state)[0] / "sessions.sqlite").is_file():
            shutil.copy(database, scratch)
        notes: list[str] = []
        showing = Showing(model)
        order = _Order(workspace, question, session or new_session(), allow, None, Path(scratch), notes, "", model)
        _run(order, lambda event: None, showing)
    return json.dumps(showing.request, ensure_ascii=False, indent=1)


@dataclass(frozen=True, slots=True)
class _Order:
    """All that one diagnosis is given."""

    workspace: Workspace
    question: str
    name: str
    allow: Risk
    approve: Approve | None
    folder: Path
    notes: list[str]
    intent: str
    model: ModelSettings | None
    team: Team | None = None
    calls: tuple[Call, ...] = ()
    watched: bool = False

    def priced(self, event: Event) -> Event:
        """What the model has cost in money, where its prices are known."""
        if self.model is None or not isinstance(event, Spent):
            return event
        from ..llm.llm_planner import cost

        return replace(event, cost=cost(self.model, event.tokens_in, event.tokens_out))

    def planner(self, tell: Callable[[Event], None], stop: Callable[[], bool]) -> Planner:
        """The model's planner where one is named."""
        from ..verdict.planner import Offline

        if self.model is None:
            return Offline()
        from ..llm.llm_planner import Model

        return Model(self.model, tell, stop)


class _Left(BaseException):
    """The reader of the events is gone. No `Exception`: a planner that survives faults must not survive this."""


def _events(order: _Order, values: dict[str, Any], stop: threading.Event) -> Iterator[Event]:
    """Run the graph in a thread, so that events arrive while it works, and end where somebody stops it."""
    inbox: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()

    def tell(event: Event) -> None:
        if left.is_set():  # nobody reads any more: the session stays where it is, nothing further is run or asked
            raise _Left
        inbox.put(order.priced(event))

    def work() -> None:
        try:
            values.update(_run(order, tell, order.planner(tell, left.is_set), left.is_set))
            inbox.put(None)
        except BaseException as e:  # noqa: BLE001 - carried over to the caller's thread, which raises it
            inbox.put(e)

    thread = threading.Thread(target=work, name="diagnosis", daemon=True)
    thread.start()
    try:
        while (event := _next(inbox, stop)) is not None:
            if isinstance(event, BaseException):
                raise event
            yield event
    finally:
        left.set()
    thread.join()


def _next(inbox: queue.SimpleQueue[Any], stop: threading.Event) -> Any:
    """The next event.

    Raises:
        Stopped: somebody does not want to wait for it.
    """
    while True:
        if stop.is_set():
            raise Stopped("stopped", "what was found so far is kept: ask again to go on")
        try:
            return inbox.get(timeout=LOOK)
        except queue.Empty:
            continue


def _run(
    order: _Order, tell: Callable[[Event], None], planner: Planner, stopped: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
    from .graph import Context
    from .store import in_memory, open_checkpoints

    asks = order.approve is not None
    context = Context(order.workspace, planner, order.allow, asks, order.name, order.intent, tell, order.notes)
    context.team = order.team or context.team
    context.calls, context.watched, context.stopped = order.calls, order.watched, stopped
    with closing(planner), open_checkpoints(order.folder, order.notes) as checkpointer:
        try:
            return _steps(order, context, checkpointer)
        except sqlite3.Error as e:  # the disk is full, or another program holds the database
            order.notes.append(f"the session cannot be kept any further ({order.folder / DATABASE}: {e})")
            return _steps(order, context, in_memory(checkpointer, order.name))


def _steps(order: _Order, context: Any, checkpointer: Any) -> dict[str, Any]:
    """From where the session stands to its report."""
    from langgraph.types import Command

    from .graph import build_graph

    graph = build_graph(checkpointer)
    config: Any = {"configurable": {"thread_id": order.name}, "recursion_limit": STEPS, "max_concurrency": CORES}
    before = graph.get_state(config)
    # what was under way is finished, unless something else is asked now
    same = bool(before.next) and order.question in ("", before.values.get("question"))
    entry: Any = None if same else {"question": order.question}
    while True:
        out = graph.invoke(entry, config, context=context, durability="sync")
        if not (calls := _waiting(graph.get_state(config))):
            return dict(out)
        entry = Command(resume=_agreed(order.approve, calls))


def _waiting(at: Any) -> tuple[Call, ...]:
    return tuple(Call(**c) for waiting in at.interrupts for c in waiting.value["calls"])


def _agreed(approve: Approve | None, calls: tuple[Call, ...]) -> bool | list[str]:
    """What somebody says, as plain data."""
    said = approve(calls) if approve else False
    return said if isinstance(said, bool) else list(said)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A session that was left before its report: what it was asked, and the calls that wait for a yes."""

    question: str
    calls: tuple[Call, ...] = ()


def unfinished(state: Path, session: str) -> Unfinished | None:
    """What a session was left at; None where it is finished, or not known any more. Asking it nothing goes on."""
    from .graph import build_graph
    from .store import open_checkpoints

    with open_checkpoints(state, [], to_read=True) as checkpointer:
        found = build_graph(checkpointer).get_state({"configurable": {"thread_id": session}})
    return Unfinished(str(found.values.get("question", "")), _waiting(found)) if found.next else None


def _team(folder: Path, session: str, notes: list[str]) -> Team:
    from .history.team import Team

    return Team.of(folder, session, notes)


def _remember(team: Team, report: Report, values: dict[str, Any], order: _Order) -> None:
    """Keep the diagnosis in the team's history; where that fails, its report says so."""
    from ..tools.tool import survived
    from .state import State, facts_of

    facts = facts_of(cast(State, values))
    failed = survived("entry in the history", lambda: team.remember(report, facts, order.workspace), REMEMBERING)
    told = [*order.notes, failed] if failed else order.notes
    report.meta.degraded = list(dict.fromkeys([*report.meta.degraded, *told]))


def _complete(report: Report, order: _Order) -> Report:
    workspace, meta = order.workspace, report.meta
    report.session = order.name
    meta.version = version("traindoctor")
    meta.degraded = list(dict.fromkeys([*order.notes, *workspace.limits, *meta.degraded]))
    if order.model is not None:
        from ..llm.llm_planner import cost

        meta.model = order.model.model
        meta.cost = cost(order.model, meta.tokens.in_, meta.tokens.out)
    known = {e.run: str(e.value) for e in report.evidence if e.key == "run.state"}
    state = next((c.why for c in report.checked if c.tool == "scan_logs"), "")
    for number, root in enumerate([*workspace.roots, *workspace.good], 1):
        run = f"r{number}"
        summary = RunSummary(id=run, root=str(root), good=number > len(workspace.roots))
        said = known.get(run) or next(
            (s for s in ("died", "hung", "running", "finished") if state.startswith(s)), "unknown"
        )
        summary.state = said if said in ("died", "hung", "running", "finished") else "unknown"  # pyright: ignore
        report.runs.append(summary)
    return report
