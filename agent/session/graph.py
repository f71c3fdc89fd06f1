"""The one loop of a diagnosis, as a LangGraph graph.

    START -> recall -> act* -> plan --calls--> approve -> act* -> plan ...
                               plan --diagnosis--> conclude --(rejected, once)--> plan
                                                   conclude -> END

A question that asks for no diagnosis (`verdict/intent.py`) takes the same way with the calls that answer it.

State is plain data (strict msgpack); the workspace and the planner travel in the context and are made again
when a session is resumed. `act` is one `Send` for each call, so that a killed session runs only the killed
call again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Send, interrupt

from ..core.events import ApprovalNeeded, CallStarted, Event, Note, Ranked, Spent, ToolFinished
from ..core.playbook import broken, causes, playbooks
from ..core.report import Checked, Meta, Patch, Report, Sentence, Tokens
from ..core.types import Call, Hypothesis, Risk, ToolResult
from ..reading.run.workspace import Workspace
from ..repair.treatment.proposed import of_verdict, offer
from ..tools.tool import all_tools, guarded, survived
from ..verdict.gate import answered, verified
from ..verdict.intent import PREFLIGHT, hardware, intent_of, named, what_is_asked_about
from ..verdict.planner import Diagnosis, Offline, Planner, ProposedEdit, View, recalled
from ..verdict.ranking import rank
from .answers import NAMED_CHECKS, answer, preflight_calls
from .conclude import SECONDS as AFTER_SECONDS
from .conclude import aftercare, conclude, passages
from .history.team import Team
from .state import State, answering, call_of, facts_of, has_run, view_of

# ----------
# How the hypotheses stand at a moment of a diagnosis, for whoever watches it.


SHOWN = 40  # hypotheses; the rest are negligible


def ranking(view: View) -> Ranked:
    """The hypotheses as the evidence has them now, with the evidence that they cite."""
    found = rank(view.playbooks, view.facts, view.sounds)[:SHOWN]
    cited = {i for h in found for i in (*h.supported_by, *h.contradicted_by)}
    known = {e.id: e for kept in view.facts.by_key.values() for e in kept if e.id in cited}
    return Ranked(tuple(found), tuple(known.values()))


# ----------

CALL_SECONDS = 120.0  # deadline of one call
KEPT = 200_000  # characters of a result's text that the session keeps
_BEGUN: dict[str, Any] = {"rounds": 0, "rejections": [], "report": None, "spent": {}, "degraded": []}  # of a question
ROUNDS = 40  # plan rounds before the evidence alone must conclude; a model's own bounds are tighter


@dataclass
class Context:
    """What a session brings along and no database keeps."""

    workspace: Workspace
    planner: Planner
    allowed: Risk = Risk.READ
    can_ask: bool = False
    session: str = ""
    intent: str = ""  # settles what is asked, whatever the question's words
    tell: Callable[[Event], None] = lambda event: None
    notes: list[str] = field(default_factory=list)
    calls: tuple[Call, ...] = ()  # checks that the user names: they are made, and nothing is diagnosed
    watched: bool = False  # tell how the hypotheses stand
    stopped: Callable[[], bool] = lambda: False  # nobody reads any more
    team: Team = field(default_factory=Team)  # what came before; without a place it knows nothing


def recall(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Plan what answers the question: for a diagnosis, the cheap read-only tools over everything there is."""
    context, question = runtime.context, state.get("question", "")
    beside = has_run(context.workspace)
    earlier = what_is_asked_about(state.get("report"), state.get("earlier"))
    again = {"turn": state.get("turn", 0) + 1, "earlier": earlier, **_BEGUN}
    if context.calls:  # made again where they were made before: what they look at may have changed
        named_calls = [asdict(c) for c in context.calls]
        return {"calls": named_calls, "intent": NAMED_CHECKS, "answers": [c.identity for c in context.calls], **again}
    known = intent_of(question, beside_run=beside, earlier=earlier)
    intent = named(context.intent, question) if context.intent else known
    done = frozenset(call_of(r).identity for r in state.get("results", []))
    if intent is None:
        calls = recalled(context.allowed, done, attached=bool(context.workspace.pids))
    else:
        calls = list(intent.calls)
        if intent.name == PREFLIGHT and (context.intent or context.workspace.files):
            calls = preflight_calls(hardware(question))
    todo = [asdict(c) for c in calls if c.identity not in done]
    name = intent.name if intent else ""
    answers = [c.identity for c in calls] if intent else []
    return {"calls": todo, "intent": name, "answers": answers, **again}


def recalled_calls(state: State) -> list[Send] | str:
    """What recall plans is cheap and read-only; what a user names may be anything, and is asked about."""
    return "approve" if state["intent"] == NAMED_CHECKS else fan_out(state)


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
        "text": result.text[:KEPT],
        "cut": max(0, len(result.text) - KEPT),
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
    result, bug = guarded(tool, context.workspace, call.args, CALL_SECONDS, context.stopped)
    result.text = result.text or result.summary
    if bug:
        context.notes.append(bug)
    result.evidence, wrong = verified(result.evidence, context.workspace)
    if wrong:
        context.notes.append(f"{call.tool} quoted {wrong} lines that do not stand there; left out (bug in doctor)")
    return result


def plan(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Ask the planner what next."""
    context = runtime.context
    view = _view(state, context)
    if context.watched:
        context.tell(ranking(view))
    over = state["rounds"] >= ROUNDS
    alone = over or state["intent"] == NAMED_CHECKS
    step = (Offline() if alone else context.planner).next(view)
    if over and not isinstance(context.planner, Offline):
        step.degraded.append(f"stopped after {ROUNDS} rounds of checks; concluded from the evidence")
    spent = {name: state["spent"].get(name, 0) + n for name, n in step.spent.items()}
    told = {
        "dialogue": step.dialogue,
        "spent": {**state["spent"], **spent},
        "degraded": [*state["degraded"], *step.degraded],
    }
    if step.spent:
        n = told["spent"]
        context.tell(Spent(int(n.get("calls", 0)), int(n.get("in", 0)), int(n.get("out", 0)), n.get("seconds", 0.0)))
    for text in step.degraded:
        context.tell(Note(text))
    for call in step.calls:
        context.tell(Note(f"{call.tool}: {call.why}" if call.why else call.identity, of_call=True))
    if step.calls:
        return {"calls": [asdict(c) for c in step.calls], "diagnosis": None, "rounds": state["rounds"] + 1, **told}
    found = step.diagnosis or Diagnosis("none.insufficient_evidence", [])
    return {"diagnosis": asdict(found) | {"sentences": [s.model_dump() for s in found.sentences]}, "calls": [], **told}


def _view(state: State, context: Context) -> View:
    return view_of(state, context.workspace, context.allowed, context.team, context.can_ask)


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
        said = interrupt({"calls": above})
    else:
        said = False
    why = "refused: you said no" if runtime.context.can_ask else "refused: above the allowed risk"
    refusal = {"__refused__": why}
    agreed = above if said is True else [c for c in above if said and Call(**c).identity in said]
    if len(agreed) == len(above):
        return {}
    refused = [c for c in above if c not in agreed]
    return {"calls": [{**c, "args": {**c["args"], **refusal}} if c in refused else c for c in state["calls"]]}


def finish(state: State, runtime: Runtime[Context]) -> dict[str, Any]:
    """Judge the diagnosis. What the gate drops goes back to the planner once, then is told."""
    context, question = runtime.context, state.get("question", "")
    raw = state.get("diagnosis") or {"cause": "", "hypotheses": [], "sentences": []}
    ranked = [Hypothesis(**h) for h in raw["hypotheses"]]
    hypotheses = context.team.by_evidence(ranked, lambda: _view(state, context))
    diagnosis = Diagnosis(
        raw["cause"],
        hypotheses,
        [Sentence(**s) for s in raw["sentences"]],
        raw.get("by_model", False),
        raw.get("ruled_out", []),
        [ProposedEdit(**{**e, "cites": tuple(e["cites"])}) for e in raw.get("edits", [])],
    )
    report, dropped, objections = _judged(state, diagnosis)
    patches, unfit = _proposed(diagnosis, report, state, context)
    if (dropped or objections or unfit) and not state["rejections"] and (diagnosis.sentences or diagnosis.by_model):
        return {"rejections": [*objections, *dropped, *unfit], "diagnosis": None, "calls": []}
    if diagnosis.cause is not None:
        settled = report.status in ("confirmed", "healthy")
        title, cause = report.root_cause.title, report.root_cause.id or ""
        report.next_steps += passages(question, title, cause, settled=settled, notes=context.notes)
        context.notes += aftercare(report, facts_of(state), context.workspace, context.team, context.session)
    report.checked = [
        Checked(tool=r["call"]["tool"], outcome=r["outcome"], why=r["summary"]) for r in state["results"]
    ] + [Checked(tool="workspace", outcome="failed", why=f"{n}: {why}") for n, why in context.workspace.skipped[:40]]
    offer(report, patches, unfit)  # behind the patches of recipes
    told = [*_told(dropped, objections, diagnosis), *(f"proposed by the model: {u}" for u in unfit)]
    report.meta = _meta(state, report.meta, [*context.notes, *broken(), *told])
    return {"report": report.model_dump(by_alias=True, mode="json")}


def _proposed(diagnosis: Diagnosis, report: Report, state: State, context: Context) -> tuple[list[Patch], list[str]]:
    """Patches of the edits that a model proposes, and what of them cannot be offered."""
    made: list[tuple[list[Patch], list[str]]] = []
    look = lambda: made.append(of_verdict(diagnosis.edits, report, context.workspace, facts_of(state)))  # noqa: E731
    if why := survived("edits of the model", look, AFTER_SECONDS):
        context.notes.append(why)
    return made[0] if made else ([], [])


def _judged(state: State, diagnosis: Diagnosis) -> tuple[Report, list[str], list[str]]:
    """The report on a diagnosis or an answer, what of the planner's words could not stand, objections to the whole."""
    dropped: list[str] = []
    if diagnosis.cause is None and diagnosis.by_model:
        report, dropped = answered(diagnosis, facts_of(state), [*causes(), *all_tools()])
        if report is not None:
            return report, dropped, []
    if diagnosis.cause is None:
        made = [r for r in state["results"] if call_of(r).identity in state.get("answers", [])]
        asked = {"question": state["question"], "earlier": state.get("earlier"), "whole": facts_of(state)}
        return answer(state.get("intent", ""), answering(state), made, playbooks(), **asked), dropped, []
    judged = conclude(diagnosis, facts_of(state), playbooks(), causes())
    return judged.report, judged.dropped, judged.objections


def _told(dropped: list[str], objections: list[str], diagnosis: Diagnosis) -> list[str]:
    """What could not stand in the end, as the report tells it. A verdict that predicates contradict is shown beside."""
    if not diagnosis.by_model:
        return dropped
    told = [f"the model's verdict: {o}" for o in objections if diagnosis.cause not in causes()]
    return [*told, *(f"the model said what does not stand, left out: {d}" for d in dropped)]


def _meta(state: State, meta: Meta, degraded: list[str]) -> Meta:
    spent = state["spent"]
    meta.tool_calls, meta.model_calls = len(state["results"]), int(spent.get("calls", 0))
    meta.tokens = Tokens.model_validate({"in": int(spent.get("in", 0)), "out": int(spent.get("out", 0))})
    meta.redacted = int(spent.get("redacted", 0))
    meta.degraded = [*state["degraded"], *degraded]
    return meta


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
    graph.add_conditional_edges("recall", recalled_calls, ["act", "plan", "approve"])
    graph.add_edge("act", "plan")
    graph.add_conditional_edges("plan", planned, ["approve", "conclude"])
    graph.add_conditional_edges("approve", fan_out, ["act", "plan"])
    graph.add_conditional_edges("conclude", concluded, ["plan", END])
    return graph.compile(checkpointer=checkpointer)


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
