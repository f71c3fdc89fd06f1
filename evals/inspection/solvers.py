"""Doctor and its rivals as solvers of inspect-ai. Labels stay with the scorer: a solver hands on files and question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inspect_ai.log import transcript  # pyright: ignore[reportMissingImports]
from inspect_ai.model import (  # pyright: ignore[reportMissingImports]
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
)
from inspect_ai.solver import Generate, Solver, TaskState, solver  # pyright: ignore[reportMissingImports]

from ...agent.core.report import Report
from ...agent.llm.model_settings import ModelSettings
from ..asked import Answer, Task
from ..run import diagnose
from ..solvers.paste import messages, read

AT_A_TIME = 1  # diagnoses; `doctor eval` is the way to many at once
WINDOW = 32_768  # tokens of a model whose window is not known


def _task(state: TaskState, **more: Any) -> Task:
    folder = Path(state.metadata["folder"])
    return Task(folder / "files", state.input_text, folder / "shell.json", **more)


@solver
def diagnosed(way: str = "offline", model: str = "", base_url: str = "") -> Solver:
    """Doctor's own planners, retrieval or grep, one diagnosis after another beside the loop."""
    from anyio import CapacityLimiter, to_thread

    settings = ModelSettings(model, base_url=base_url, api_key="none") if model else None
    limiter: list[CapacityLimiter] = []  # it belongs to the loop that runs the task

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        limiter.extend([CapacityLimiter(AT_A_TIME)] if not limiter else [])
        task = _task(state, model=settings, solver=way if way != "model" else "offline")
        told(state, await to_thread.run_sync(diagnose, task, limiter=limiter[0]))
        return state

    return solve


@solver
def kept(reports: Path, seconds: dict[str, float]) -> Solver:
    """Reports that have been made already, by incident: `<id>.json`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        path = reports / f"{state.sample_id}.json"
        if path.is_file():
            told(state, Answer(path.read_text(encoding="utf-8"), seconds.get(str(state.sample_id), 0.0)))
        return state

    return solve


@solver
def pasted(window: int = WINDOW) -> Solver:
    """The logs in one request to the model that inspect runs with; secrets are taken out of what is sent."""
    from ...agent.safety.redact import Redactor

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        redactor = Redactor()
        system, user = messages(_task(state), ModelSettings("", window=window))
        state.messages = [
            ChatMessageSystem(content=redactor.redact(system["content"])),
            ChatMessageUser(content=redactor.redact(user["content"])),
        ]
        state = await generate(state)
        report = read(state.output.completion)
        report.meta.model_calls = 1
        if (usage := state.output.usage) is not None:
            report.meta.tokens.in_, report.meta.tokens.out = usage.input_tokens, usage.output_tokens
        state.store.set("report", report.to_json())
        return state

    return solve


def told(state: TaskState, answer: Answer) -> None:
    """Hand a report to the scorer, and tell in the transcript how it came about."""
    from ...agent.telling.render import as_markdown

    report = Report.model_validate_json(answer.report)
    state.store.set("report", answer.report)
    state.store.set("seconds", answer.seconds)
    state.store.set("in_file", answer.in_file)
    for check in report.checked:
        transcript().info({"check": check.tool, "outcome": check.outcome, "why": check.why}, source="checks")
    transcript().info({"evidence": [e.model_dump(exclude_none=True) for e in report.evidence]}, source="evidence")
    transcript().info({"differential": [d.model_dump() for d in report.differential]}, source="differential")
    state.messages.append(ChatMessageAssistant(content=as_markdown(report), source="generate"))
    state.output.completion = report.root_cause.id or ""
    state.completed = True
