"""The state of a diagnosis as plain data, and what is read from it: numbered evidence, the planner's view."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Annotated, Any, TypedDict

from ..core.playbook import playbooks
from ..core.types import Call, Evidence, Risk
from ..reading.run.files import RunFile
from ..reading.run.workspace import Workspace
from ..reading.scan.windows import nearby
from ..tools.tool import all_tools
from ..verdict.meaning import asked
from ..verdict.planner import View
from ..verdict.predicates import Facts
from ..verdict.salience import without_neighbours
from ..verdict.steer import Sounds, excerpt, heard
from .answers import is_answered
from .history.team import Team

FILES = 8  # of each role that the overview names
SMALL = 16_000  # bytes of a file that may be shown whole


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
    earlier: dict[str, Any] | None  # the report on the question before
    dialogue: Annotated[list[dict[str, Any]], operator.add]  # what a planner that talks has said and heard
    spent: dict[str, float]  # what it cost to answer this question
    degraded: list[str]  # why the planner could not go on as it should


def answering(state: State) -> Facts:
    """The evidence of this turn's own calls: a session keeps what earlier questions were answered with."""
    return Facts.of(_numbered(state, frozenset(state.get("answers", []))))


def _ids(state: State) -> list[list[str]]:
    """The ids of each result's evidence, by the same count."""
    ids, number = [], 0
    for result in state.get("results", []):
        ids.append([f"E{n}" for n in range(number + 1, number + len(result["evidence"]) + 1)])
        number += len(result["evidence"])
    return ids


def _numbered(state: State, only: frozenset[str] | None = None) -> Iterator[Evidence]:
    """Evidence as E1, E2, ... in the order the calls were planned; of some calls alone under the same numbers."""
    number = 0
    for result in state.get("results", []):
        wanted = only is None or call_of(result).identity in only
        for raw in result["evidence"]:
            number += 1
            if wanted:
                yield Evidence(**{**raw, "id": f"E{number}"})


def facts_of(state: State) -> Facts:
    """All evidence so far, with what the question asserts."""
    evidence = [*asked(state.get("question", "")), *_numbered(state)]
    looked = [r["call"]["tool"] for r in state.get("results", []) if r["outcome"] in ("finding", "clean")]
    return Facts.of(without_neighbours(evidence), looked)


def view_of(state: State, workspace: Workspace, allowed: Risk, team: Team, askable: bool = False) -> View:
    """What the planner is shown; `team` moves what it sounds like by what verdicts like this one really were.

    Args:
        askable: somebody can be asked for calls above the allowed risk.
    """
    facts = facts_of(state)
    known = playbooks()
    done = frozenset(i for r in state.get("results", []) for i in _settled_by(r, allowed))
    question = state.get("question", "")
    intent = state.get("intent", "")
    attached, diagnosable = bool(workspace.pids), has_run(workspace)
    sounds = Sounds() if intent else heard(question, facts, excerpt(workspace))
    sounds = sounds if intent else team.moved(sounds, known, facts, workspace)
    known_answer = is_answered(intent, answering(state)) if intent else False
    return View(
        question, facts, known, sounds, done, allowed, intent, known_answer, diagnosable, attached,
        askable=askable, live=askable and workspace.live,
        turn=state.get("turn", 1), results=state.get("results", []), evidence_of=_ids(state),
        dialogue=state.get("dialogue", []), spent=state.get("spent", {}), rejections=state.get("rejections", []),
        overview=_overview(workspace), names=frozenset(f.name for f in workspace.files),
        roots=[str(r) for r in (*workspace.roots, *workspace.good)],
        texts=lambda: _texts(workspace), earlier=state.get("earlier"),
        nearby=lambda evidence: nearby(workspace, evidence),
    )  # fmt: skip


def _settled_by(result: dict[str, Any], allowed: Risk) -> Iterator[str]:
    """The identities of calls that a result leaves nothing to ask of. A refused one counts as long as it is refused."""
    call = call_of(result)
    yield call.identity
    if "__refused__" in call.args:
        meant = Call(call.tool, {k: v for k, v in call.args.items() if k != "__refused__"})
        tool, order = all_tools().get(call.tool), list(Risk)
        if tool is None or order.index(tool.risk) > order.index(allowed):
            yield meant.identity


def _texts(workspace: Workspace) -> Iterator[tuple[str, str]]:
    """Name and text of each small file, in the order in which they tell most."""
    for role in ("config", "log", "code", "environment", "capture", "other", "metrics"):
        for file in workspace.by_role(role):
            if 0 < file.size <= SMALL and b"\0" not in workspace.head(file):
                yield file.name, workspace.text(file, SMALL)


def _overview(workspace: Workspace) -> list[str]:
    """The runs in lines: where they are, and their files by role, the largest named."""
    lines = [f"{'good run' if r in workspace.good else 'run'} {r}" for r in [*workspace.roots, *workspace.good]]
    by_role: dict[str, list[RunFile]] = {}
    for file in workspace.files:
        by_role.setdefault(file.role, []).append(file)
    for role, files in by_role.items():
        largest = sorted(files, key=lambda f: -f.size)[:FILES]
        more = f" and {len(files) - FILES} more" if len(files) > FILES else ""
        lines.append(f"{role}: {', '.join(f'{f.name} ({f.size} B)' for f in largest)}{more}")
    return [*lines, *(f"skipped {name}: {why}" for name, why in workspace.skipped[:6])]


def has_run(workspace: Workspace) -> bool:
    """Whether there is something to diagnose: logs, metrics or captures, or processes that were named."""
    return bool(workspace.pids or workspace.by_role("log", "metrics", "capture"))


def call_of(result: dict[str, Any]) -> Call:
    """The call that made a result."""
    return Call(**result["call"])
