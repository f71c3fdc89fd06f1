"""The one loop of a diagnosis, as a LangGraph graph.

    START -> recall -> act* -> plan --calls--> approve -> act* -> plan ...
                               plan --diagnosis--> conclude --(rejected, once)--> plan
                                                   conclude -> END

A question that asks for no diagnosis (`intent.py`) takes the same way with the calls that answer it.

State is plain data (strict msgpack); the workspace and the planner travel in the context and are made again
when a session is resumed. `act` is one `Send` for each call, so that a killed session runs only the killed
call again.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send, interrupt

from .answers import answer, is_answered, preflight_calls
from .calls import guarded
from .conclude import conclude
from .events import ApprovalNeeded, CallStarted, Event, Note, ToolFinished
from .intent import PREFLIGHT, hardware, intent_of, named
from .library import broken, playbooks
from .passages import passages
from .planner import Diagnosis, Planner, View, recalled
from .playbook import causes
from .predicates import Facts
from .prior import prior
from .question import asked
from .quotes import verified
from .report import Checked, Meta, Sentence
from .tool import all_tools
from .types import Call, Evidence, Hypothesis, Risk, ToolResult
from .workspace import Workspace

CALL_SECONDS = 120.0  # deadline of one call
ROUNDS = 12  # plan rounds before the planner must conclude


class State(TypedDict):
    """What is checkpointed: plain data only."""

    question: str
    turn: int
    intent: str
    answers: list[str]  # the calls that answer this turn's question, where it asks for no diagnosis
    results: Annotated[list[dict[str, Any]], operator.add]
    calls: list[dict[str, Any]]
    diagnosis: dict[str, Any] | None
    rejections: list[str]
    rounds: int
    report: dict[str, Any] | None


@dataclass
class Context:
    """What a session brings along and no database keeps."""

    workspace: Workspace
    planner: Planner
    allowed: Risk = Risk.READ
    can_ask: bool = False
    intent: str = ""  # settles what is asked, whatever the question's words
    tell: Callable[[Event], None] = lambda event: None
    notes: list[str] = field(default_factory=list)


def recall(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Plan what answers the question: for a diagnosis, the cheap read-only tools over everything there is."""
    context, question = runtime.context, state.get("question", "")
    intent = named(context.intent, question) if context.intent else intent_of(question, beside_run=_has_run(context))
    done = frozenset(_call(r).identity for r in state.get("results", []))
    if intent is None:
        calls = recalled(context.allowed, done, attached=bool(context.workspace.pids))
    else:
        calls = list(intent.calls)
        if intent.name == PREFLIGHT and (context.intent or context.workspace.files):
            calls = preflight_calls(hardware(question))
    todo = [asdict(c) for c in calls if c.identity not in done]
    name = intent.name if intent else ""
    answers = [c.identity for c in calls] if intent else []
    return {"calls": todo, "intent": name, "answers": answers, "rounds": 0, "rejections": [], "report": None}


def fan_out(state: State) -> list[Send] | str:
    """One `act` for each planned call."""
    return [Send("act", {"call": c}) for c in state["calls"]] or "plan"


def act(task: dict[str, Any], runtime: Runtime[Context]) -> dict[str, Any]:
    """Run one call; `calls.guarded` catches whatever it raises."""
    context, call = runtime.context, Call(**task["call"])
    context.tell(CallStarted(call))
    began = time.perf_counter()
    result = _run(call, context)
    seconds = time.perf_counter() - began
    context.tell(ToolFinished(call, result, seconds))
    entry = {
        "call": asdict(call),
        "outcome": result.outcome,
        "summary": result.summary,
        "text": result.text[:20_000],
        "evidence": [_plain(e.as_dict()) for e in result.evidence],
        "seconds": round(seconds, 3),
    }
    return {"results": [entry]}


def _run(call: Call, context: Context) -> ToolResult:
    if call.args.get("__refused__"):
        return ToolResult("not_allowed", call.args["__refused__"])
    tool = all_tools().get(call.tool)
    if tool is None:
        return ToolResult("failed", f"no tool is called {call.tool!r}")
    result, bug = guarded(tool, context.workspace, call.args, CALL_SECONDS)
    if bug:
        context.notes.append(bug)
    result.evidence, wrong = verified(result.evidence, context.workspace)
    if wrong:
        context.notes.append(f"{call.tool} quoted {wrong} lines that do not stand there; left out (bug in doctor)")
    return result


def plan(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Ask the planner what next."""
    view = view_of(state, runtime.context)
    step = runtime.context.planner.next(view)
    if isinstance(step, Diagnosis) or state["rounds"] >= ROUNDS:
        found = step if isinstance(step, Diagnosis) else Diagnosis("none.insufficient_evidence", [])
        sentences = [s.model_dump() for s in found.sentences]
        hypotheses = [asdict(h) for h in found.hypotheses]
        diagnosis = {"cause": found.cause, "hypotheses": hypotheses, "sentences": sentences}
        return {"diagnosis": diagnosis, "calls": []}
    for call in step:
        runtime.context.tell(Note(f"{call.tool}: {call.why}"))
    return {"calls": [asdict(c) for c in step], "diagnosis": None, "rounds": state["rounds"] + 1}


def planned(state: State) -> str:
    """Calls go to approval, a diagnosis to its conclusion."""
    return "conclude" if state.get("diagnosis") else "approve"


def approve(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Let calls within the allowed risk pass; ask for the rest. A node of its own, as it runs again on resume."""
    order = list(Risk)
    limit = order.index(runtime.context.allowed)
    above = [c for c in state["calls"] if order.index(_risk(c["tool"])) > limit]
    if not above:
        return {}
    if runtime.context.can_ask:
        runtime.context.tell(ApprovalNeeded(tuple(Call(**c) for c in above)))
        agreed = bool(interrupt({"calls": above}))
    else:
        agreed = False
    if agreed:
        return {}
    refusal = {"__refused__": "refused: above the allowed risk"}
    return {"calls": [{**c, "args": {**c["args"], **refusal}} if c in above else c for c in state["calls"]]}


def finish(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Judge the diagnosis. What the gate drops goes back to the planner once, then is told."""
    context, facts = runtime.context, facts_of(state)
    raw = state.get("diagnosis") or {"cause": "", "hypotheses": [], "sentences": []}
    diagnosis = Diagnosis(
        raw["cause"], [Hypothesis(**h) for h in raw["hypotheses"]], [Sentence(**s) for s in raw["sentences"]]
    )
    question, dropped = state.get("question", ""), []
    if diagnosis.cause is None:
        made = [r for r in state["results"] if _call(r).identity in state.get("answers", [])]
        report = answer(state.get("intent", ""), _answering(state), made, playbooks())
    else:
        concluded = conclude(diagnosis, facts, playbooks(), causes())
        report, dropped = concluded.report, concluded.dropped
        if dropped and not state["rejections"] and diagnosis.sentences:
            return {"rejections": dropped, "diagnosis": None, "calls": []}
        settled = report.status in ("confirmed", "healthy")
        title, cause = report.root_cause.title, report.root_cause.id or ""
        report.next_steps += passages(question, title, cause, settled=settled, notes=context.notes)
    report.checked = [
        Checked(tool=r["call"]["tool"], outcome=r["outcome"], why=r["summary"]) for r in state["results"]
    ] + [Checked(tool="workspace", outcome="failed", why=f"{n}: {why}") for n, why in context.workspace.skipped[:40]]
    report.meta = Meta(tool_calls=len(state["results"]), degraded=[*context.notes, *broken(), *dropped])
    return {"report": report.model_dump(by_alias=True, mode="json")}


def concluded(state: State) -> str:
    """Back to the planner after a rejection, otherwise the end."""
    return END if state.get("report") else "plan"


def build_graph(checkpointer: Any) -> Any:
    """The compiled graph, durable through the given checkpointer."""
    graph = StateGraph(State, context_schema=Context)
    nodes: dict[str, Any] = {"recall": recall, "act": act, "plan": plan, "approve": approve, "conclude": finish}
    for name, node in nodes.items():
        graph.add_node(name, node)
    graph.add_edge(START, "recall")
    graph.add_conditional_edges("recall", fan_out, ["act", "plan"])
    graph.add_edge("act", "plan")
    graph.add_conditional_edges("plan", planned, ["approve", "conclude"])
    graph.add_conditional_edges("approve", fan_out, ["act", "plan"])
    graph.add_conditional_edges("conclude", concluded, ["plan", END])
    return graph.compile(checkpointer=checkpointer)


def _answering(state: State) -> Facts:
    """The evidence of this turn's own calls: a session keeps what earlier questions were answered with."""
    return Facts.of(_numbered(state, frozenset(state.get("answers", []))))


def _numbered(state: State, only: frozenset[str] | None = None) -> Iterator[Evidence]:
    """Evidence as E1, E2, ... in the order the calls were planned; of some calls alone under the same numbers."""
    number = 0
    for result in state.get("results", []):
        wanted = only is None or _call(result).identity in only
        for raw in result["evidence"]:
            number += 1
            if wanted:
                yield Evidence(**{**raw, "id": f"E{number}"})


def facts_of(state: State) -> Facts:
    """All evidence so far, with what the question asserts."""
    evidence = [*asked(state.get("question", "")), *_numbered(state)]
    looked = [r["call"]["tool"] for r in state.get("results", []) if r["outcome"] in ("finding", "clean")]
    return Facts.of(evidence, looked)


def view_of(state: State, context: Context) -> View:
    """What the planner is shown."""
    facts = facts_of(state)
    known = playbooks()
    done = frozenset(_call(r).identity for r in state.get("results", []))
    question = state.get("question", "")
    workspace, intent = context.workspace, state.get("intent", "")
    attached, diagnosable = bool(workspace.pids), _has_run(context)
    fitting = {} if intent else prior(question, facts)
    answered = is_answered(intent, _answering(state)) if intent else False
    return View(question, facts, known, fitting, done, context.allowed, intent, answered, diagnosable, attached)


def _has_run(context: Context) -> bool:
    """Whether there is something to diagnose: logs, metrics or captures, or processes that were named."""
    return bool(context.workspace.pids or context.workspace.by_role("log", "metrics", "capture"))


def _call(result: dict[str, Any]) -> Call:
    return Call(**result["call"])


def _risk(tool: str) -> Risk:
    known = all_tools().get(tool)
    return known.risk if known else Risk.READ


def _plain(value: Any) -> Any:
    """Numpy scalars and tuples as plain data; integers beyond 64 bits, which the session cannot keep, as floats."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str):
        return _plain(value.item())
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return float(value) if abs(value) < 1 << 1023 else str(value)[:40]
    return value
