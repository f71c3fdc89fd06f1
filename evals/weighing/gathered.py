"""The evidence of incidents, gathered once and kept: weights are fitted, rules left out without reading again."""

from __future__ import annotations

import multiprocessing
import pickle
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from ...agent.verdict.predicates import Facts
from ...agent.verdict.steer import Sounds
from ..case import Case


@dataclass(frozen=True, slots=True)
class Todo:
    """An incident whose evidence is wanted.

    Attributes:
        table: the set of incidents that it is of; "planted" and "swapped" for transplants.
        source: where it comes from; rules that hold for no other may have been written for it.
        planted: causes that were brought in and explain nothing.
    """

    case: Case
    table: str
    source: str
    planted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What a diagnosis had to judge by."""

    of: Todo
    facts: Facts
    sounds: Sounds


def gather(todo: Todo) -> Gathered | None:
    """Diagnose an incident and take what the verdict stood on; None where no diagnosis was asked for."""
    from ...agent.core.events import ReportReady, SessionStarted
    from ...agent.core.shell import Recorded
    from ...agent.reading.run.workspace import Workspace
    from ...agent.session import session
    from ...agent.session.graph import build_graph
    from ...agent.session.state import facts_of
    from ...agent.session.store import open_checkpoints
    from ...agent.verdict.steer import excerpt, heard

    case = todo.case
    with tempfile.TemporaryDirectory(prefix="doctor-weights-") as scratch:
        run, state, name = Path(scratch) / "run", Path(scratch) / "state", ""
        shutil.copytree(case.files, run, symlinks=True)
        ws = Workspace([run], shell=Recorded(case.shell), question=case.question, live=case.shell.is_file())
        answer = False
        for event in session.diagnose(ws, case.question, state=state, history=False):
            if isinstance(event, SessionStarted):
                name = event.session
            if isinstance(event, ReportReady):
                answer = event.report.status == "answer"
        with open_checkpoints(state, [], to_read=True) as kept:
            facts = facts_of(build_graph(kept).get_state({"configurable": {"thread_id": name}}).values)  # pyright: ignore[reportArgumentType]
        if answer:
            return None
        return Gathered(todo, facts, heard(case.question, facts, excerpt(ws)))


def gather_all(todo: Iterable[Todo], keep: Path, jobs: int) -> list[Gathered]:
    """The evidence of incidents, each diagnosed once and kept in a folder; a crash ends it."""
    keep.mkdir(parents=True, exist_ok=True)
    found: dict[Path, Gathered | None] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {}
        for one in todo:
            path = keep / f"{one.table}--{one.case.id.replace(':', '-')}.pickle"
            if path.exists():
                found[path] = pickle.loads(path.read_bytes())
            else:
                waiting[pool.submit(gather, one)] = path
        for future in as_completed(waiting):
            path = waiting[future]
            found[path] = future.result()
            path.write_bytes(pickle.dumps(found[path]))
    return [g for path in sorted(found) if (g := found[path]) is not None]
