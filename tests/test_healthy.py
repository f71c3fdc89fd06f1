"""Sound runs of real frameworks: none is blamed, asked whether it is fine or what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from traindoctor.agent import session
from traindoctor.agent.events import ReportReady
from traindoctor.agent.report import Report
from traindoctor.agent.shell import Recorded
from traindoctor.agent.workspace import Workspace
from traindoctor.evals.case import Case, find
from traindoctor.evals.score import HEALTHY, INSUFFICIENT

ROOT = Path(__file__).resolve().parent.parent / "evals" / "healthy"
RUNS = [case for case in find([ROOT]) if ":" not in case.id]
SHARDS = 4


def answers(case: Case, state: Path) -> dict[str, Report]:
    """The report for each way to ask; what was read for one question serves the next."""
    workspace = Workspace([case.files], shell=Recorded(case.shell), live=False)
    found = {}
    for question in (case.question, *case.also_asked):
        *_, last = session.diagnose(workspace, question, state=state)
        assert isinstance(last, ReportReady)
        found[question] = last.report
    return found


@pytest.mark.real
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_sound_run_is_blamed(shard: int, tmp_path: Path) -> None:
    blamed, told, long = [], 0, 0
    for case in RUNS[shard::SHARDS]:
        for question, report in answers(case, tmp_path / case.id).items():
            cause = report.root_cause.id
            if cause not in (HEALTHY, INSUFFICIENT):
                blamed.append(f"{case.id}: {question!r} -> {cause} ({report.status}, {report.root_cause.confidence:.2f})")
            if not case.acceptable:
                long, told = long + 1, told + (cause == HEALTHY)
    assert not blamed, "\n".join(blamed)
    assert told >= 0.9 * long


def test_the_recorded_runs_are_many_small_and_of_nowhere() -> None:
    table = yaml.safe_load((ROOT / "runs.yaml").read_text(encoding="utf-8"))
    assert {case.id for case in RUNS} == set(table)
    assert len(RUNS) >= 40
    assert len({entry["framework"] for entry in table.values()}) >= 10
    files = [path for case in RUNS for path in case.files.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    assert max(path.stat().st_size for path in files) <= 200_000
    assert not [path for path in files if any(word in path.read_bytes() for word in (b"/root/", b"/work/", b"@gmail"))]
