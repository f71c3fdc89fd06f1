"""The one door: a workspace and a question go in, a stream of events comes out, the last is the report.

Sessions are durable: each step is on disk before the next begins, a killed session goes on where it was, and
`session=` continues a finished one with a further question on the same evidence.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .events import Event, ReportReady, SessionStarted
from .report import Report, RunSummary
from .store import new_session, save_report, usable_state
from .types import Call, Risk
from .workspace import Workspace

Approve = Callable[[tuple[Call, ...]], bool]


def diagnose(
    workspace: Workspace,
    question: str = "",
    *,
    session: str | None = None,
    allow: Risk = Risk.READ,
    approve: Approve | None = None,
    state: Path | None = None,
    intent: str = "",
) -> Iterator[Event]:
    """Diagnose a run.

    Args:
        session: go on with this session: unfinished work is finished, a finished one takes the new question.
        allow: calls up to this risk run unasked.
        approve: asked about calls above it; without it they are refused.
        state: folder of the session database and the reports.
        intent: what is asked (`preflight`), where the question's words are not to decide it.

    Yields:
        events; the last is `ReportReady`.
    """
    began = time.perf_counter()
    folder, degraded = usable_state(state)
    name = session or new_session()
    yield SessionStarted(name)
    values: dict[str, Any] = {}
    notes: list[str] = [degraded] if degraded else []
    yield from _events(workspace, question, name, allow, approve, folder, notes, values, intent)
    report = _complete(Report.model_validate(values["report"]), workspace, question, name, notes)
    report.meta.seconds = round(time.perf_counter() - began, 3)
    save_report(folder, report)
    yield ReportReady(report)


def _events(
    workspace: Workspace, question: str, name: str, allow: Risk, approve: Approve | None, folder: Path,
    notes: list[str], values: dict[str, Any], intent: str,
) -> Iterator[Event]:  # fmt: skip
    """Run the graph in a thread, so that events arrive while it works."""
    inbox: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()

    def work() -> None:
        try:
            values.update(_run(workspace, question, name, allow, approve, folder, notes, inbox.put, intent))
            inbox.put(None)
        except BaseException as e:  # noqa: BLE001 - carried over to the caller's thread, which raises it
            inbox.put(e)

    thread = threading.Thread(target=work, name="diagnosis", daemon=True)
    thread.start()
    while (event := inbox.get()) is not None:
        if isinstance(event, BaseException):
            raise event
        yield event
    thread.join()


def _run(
    workspace: Workspace, question: str, name: str, allow: Risk, approve: Approve | None, folder: Path,
    notes: list[str], tell: Callable[[Event], None], intent: str,
) -> dict[str, Any]:  # fmt: skip
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
    from langgraph.types import Command

    from .checkpoints import open_checkpoints
    from .graph import Context, build_graph
    from .planner import Offline

    context = Context(workspace, Offline(), allow, approve is not None, intent, tell, notes)
    with open_checkpoints(folder, notes) as checkpointer:
        graph = build_graph(checkpointer)
        config = {"configurable": {"thread_id": name}, "recursion_limit": 100, "max_concurrency": os.cpu_count() or 2}
        before = graph.get_state(config)
        unfinished = bool(before.next)
        entry: Any = None if unfinished else {"question": question}
        while True:
            out = graph.invoke(entry, config, context=context, durability="sync")
            waiting = graph.get_state(config).interrupts
            if not waiting:
                return dict(out)
            calls = tuple(Call(**c) for w in waiting for c in w.value["calls"])
            entry = Command(resume=bool(approve and approve(calls)))


def _complete(report: Report, workspace: Workspace, question: str, name: str, notes: list[str]) -> Report:
    report.session, report.question = name, question
    report.meta.version = version("traindoctor")
    report.meta.degraded = list(dict.fromkeys([*notes, *report.meta.degraded]))
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

