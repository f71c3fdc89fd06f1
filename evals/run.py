"""Diagnose incidents as a user would, several at a time, and score what comes back.

The labels never reach the diagnosis: it gets a copy of the incident's files under a neutral name, the
question and the recorded commands.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from ..agent.core.report import Report
from ..agent.llm.model_settings import ModelSettings
from . import solvers
from .asked import Answer, Task
from .case import Case
from .exchanges import Exchange
from .score import Score, score, unanswered

REPLAYED = 131_072  # tokens that a replayed model is taken to read


def diagnose(task: Task) -> Answer:
    """One diagnosis in a fresh workspace, with a state folder of its own; by another way where the task names one."""
    return _otherwise(task) if task.solver in solvers.OTHERS else _by_doctor(task)


def _otherwise(task: Task) -> Answer:
    with tempfile.TemporaryDirectory(prefix="doctor-eval-") as scratch:
        run = Path(scratch) / "run"
        shutil.copytree(task.files, run, symlinks=True)
        started = time.perf_counter()
        report = solvers.solver(task.solver)(replace(task, files=run))
        return Answer(report.to_json(), time.perf_counter() - started)


def _by_doctor(task: Task) -> Answer:
    from contextlib import ExitStack

    from ..agent.core.events import ReportReady
    from ..agent.core.shell import Recorded
    from ..agent.reading.run.workspace import Workspace
    from ..agent.session import session
    from .endpoint import ScriptedEndpoint
    from .treatment import lives_in_a_file

    with ExitStack() as stack, tempfile.TemporaryDirectory(prefix="doctor-eval-") as scratch:
        run = Path(scratch) / "run"
        shutil.copytree(task.files, run, symlinks=True)
        started = time.perf_counter()
        workspace = Workspace([run], shell=Recorded(task.shell), question=task.question, live=task.shell.is_file())
        report: Report | None = None
        model = task.model
        if task.exchange is not None:
            server = stack.enter_context(ScriptedEndpoint(task.exchange.answer))
            model = ModelSettings("recorded", base_url=server.url, api_key="none", window=REPLAYED)
        state = Path(scratch) / "state"
        for event in session.diagnose(workspace, task.question, state=state, model=model, history=False):
            if isinstance(event, ReportReady):
                report = event.report
        seconds = time.perf_counter() - started
        in_file = report is not None and lives_in_a_file(report, workspace)
    if report is None:
        raise RuntimeError("the diagnosis ended without a report")
    return Answer(report.to_json(), seconds, in_file)


def evaluate(
    cases: Iterable[Case],
    jobs: int = 1,
    told: Callable[[Score], None] | None = None,
    keep: Path | None = None,
    model: ModelSettings | None = None,
    exchanges: Mapping[str, Exchange] | None = None,
    solver: str = "offline",
) -> list[Score]:
    """Score every incident, in the order of the cases. A crash scores zero, with its reason.

    Args:
        jobs: processes; each diagnoses one incident at a time.
        told: called with each score as it comes.
        keep: a folder that receives `<id>.json`, the report of each incident.
        model: the model to ask; without one the diagnoses are made offline.
        exchanges: recorded conversations by incident, replayed in place of a model.
        solver: by which way; see `solvers`.
    """
    cases = list(cases)
    scores: dict[str, Score] = {}
    pool = ProcessPoolExecutor(max(1, min(jobs, len(cases))), mp_context=multiprocessing.get_context("spawn"))
    try:
        said = exchanges or {}
        tasks = {c.id: Task(c.files, c.question, c.shell, model, said.get(c.id), solver) for c in cases}
        futures = {pool.submit(diagnose, tasks[c.id]): c for c in cases}
        for future in as_completed(futures):
            case = futures[future]
            found = scores[case.id] = _scored(case, future, keep)
            if told:
                told(found)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    return [scores[c.id] for c in cases]


def _scored(case: Case, future: Future[Answer], keep: Path | None) -> Score:
    if (error := future.exception()) is not None:
        return unanswered(case, f"{type(error).__name__}: {error}")
    answer = future.result()
    if keep:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{case.id}.json").write_text(answer.report, encoding="utf-8")
    return score(case, Report.model_validate_json(answer.report), answer.seconds, answer.in_file)
