"""Diagnose incidents as a user would, several at a time, and score what comes back.

The labels never reach the diagnosis: it gets a copy of the incident's files under a neutral name, the
question and the recorded commands.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from ..agent.report import Report
from .case import Case
from .score import Score, score, unanswered


@dataclass(frozen=True, slots=True)
class Task:
    """All that a diagnosis gets to know of an incident."""

    files: Path
    question: str
    shell: Path


@dataclass(frozen=True, slots=True)
class Answer:
    """The report as JSON (plain text crosses processes) and the seconds the diagnosis took."""

    report: str
    seconds: float


def diagnose(task: Task) -> Answer:
    """One diagnosis in a fresh workspace, with a state folder of its own."""
    from ..agent import session
    from ..agent.events import ReportReady
    from ..agent.shell import Recorded
    from ..agent.workspace import Workspace

    with tempfile.TemporaryDirectory(prefix="doctor-eval-") as scratch:
        run = Path(scratch) / "run"
        shutil.copytree(task.files, run, symlinks=True)
        started = time.perf_counter()
        workspace = Workspace([run], shell=Recorded(task.shell), question=task.question, live=task.shell.is_file())
        report: Report | None = None
        for event in session.diagnose(workspace, task.question, state=Path(scratch) / "state"):
            if isinstance(event, ReportReady):
                report = event.report
        seconds = time.perf_counter() - started
    if report is None:
        raise RuntimeError("the diagnosis ended without a report")
    return Answer(report.to_json(), seconds)


def evaluate(
    cases: Iterable[Case],
    jobs: int = 1,
    told: Callable[[Score], None] | None = None,
    keep: Path | None = None,
) -> list[Score]:
    """Score every incident, in the order of the cases. A crash scores zero, with its reason.

    Args:
        jobs: processes; each diagnoses one incident at a time.
        told: called with each score as it comes.
        keep: a folder that receives `<id>.json`, the report of each incident.
    """
    cases = list(cases)
    scores: dict[str, Score] = {}
    pool = ProcessPoolExecutor(max(1, min(jobs, len(cases))), mp_context=multiprocessing.get_context("spawn"))
    try:
        futures = {pool.submit(diagnose, Task(c.files, c.question, c.shell)): c for c in cases}
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
    return score(case, Report.model_validate_json(answer.report), answer.seconds)
