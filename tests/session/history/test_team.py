"""What the history does to diagnoses: earlier failures told, advice changed, the ranking moved within bounds; evals free."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from traindoctor.agent.core.events import ReportReady
from traindoctor.agent.core.report import Report
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.session.history import diagnoses
from traindoctor.agent.session.history import team as corrections
from traindoctor.agent.session.history.diagnoses import Wanted
from traindoctor.agent.session.history.history_database import Place, reading, writing
from traindoctor.agent.session.history.team import STRONGEST, Correction
from traindoctor.agent.session.session import diagnose
from traindoctor.evals.asked import Task
from traindoctor.evals.run import diagnose as evaluate_one

HUB = (
    "2026-03-0{day} 01:00:00 INFO start\n"
    "Traceback (most recent call last):\n"
    '  File "/opt/conda/lib/python3.11/site-packages/huggingface_hub/file_download.py", line 1374, in _request_wrapper\n'
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded\n"
    "OSError: We couldn't connect to 'https://huggingface.co' to load this file, couldn't find it in the cached files\n"
)
XID = "Mar  {day} 02:00:01 n12 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=1234, GPU has fallen off the bus.\n"
ECC = "step 1 loss 2.1\nRuntimeError: CUDA error: uncorrectable ECC error encountered\n"
NAN = "".join(
    f"step {s} loss {'nan' if s >= 3500 else round(4 - s * 0.0005, 4)} lr 0.01 grad_norm {'nan' if s >= 3500 else 1.2}\n"
    for s in range(0, 4100, 10)
)
SCRIPT = (
    "from transformers import TrainingArguments\nargs = TrainingArguments(output_dir='.', fp16=True, max_grad_norm=0)\n"
)


def report_on(run: Path, text: str, state: Path, question: str = "why did it die?", name: str = "train.log") -> Report:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text(text)
    *_, last = diagnose(Workspace([run]), question, state=state)
    assert isinstance(last, ReportReady)
    return last.report


def rows(state: Path) -> int:
    return len(reading(Place(state), lambda base: diagnoses.found(base, Wanted(limit=99)), []))


def test_a_restart_that_did_not_help_twice_is_no_advice_any_more(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "exp42"
    advice = []
    for day in (1, 2, 3):
        report = report_on(run, HUB.format(day=day), state)
        assert report.root_cause.id == "env.hub_access" and report.restart is not None
        advice.append((report.restart.advice, len(report.restart.before)))
    assert advice == [("restart", 0), ("restart", 1), ("fix_first", 2)]
    assert "did not help" in report.meta.history[0]
    assert [b.same for b in report.restart.before] == [["cause", "job"], ["cause", "job"]]
    again = report_on(run, HUB.format(day=3), state)  # the same failure once more
    assert again.restart is not None and len(again.restart.before) == 2
    elsewhere = report_on(tmp_path / "exp43", HUB.format(day=3), state)
    assert elsewhere.restart is not None and elsewhere.restart.advice == "restart" and not elsewhere.restart.before
    assert rows(state) == 5


def test_a_node_that_keeps_failing_is_left_out_where_this_run_names_it_too(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for day in (1, 2):
        made = report_on(tmp_path / f"job{day}", XID.format(day=day).replace("n12", "node12"), state, "gpu lost")
        assert made.restart is not None and made.restart.exclude == ["node12"]
    apart = report_on(tmp_path / "a", ECC, state, "gpu dead")
    assert apart.restart is not None and apart.restart.advice == "restart_excluding" and apart.restart.exclude == []
    assert apart.meta.history == ["node12 was named in 2 of the last 2 hardware diagnoses"]
    assert any("To find the node" in step for step in apart.next_steps)
    there = report_on(tmp_path / "b", ECC, state, "gpu dead", "node12/rank0.log")
    assert there.restart is not None and there.restart.exclude == ["node12"]


def correct(place: Place, *, times: int, said: str, truth: str) -> None:
    for number in range(times):
        made = Correction(f"c{number}", diagnoses.now(), "ada", said, truth, "hf", "")
        writing(place, lambda base, made=made: corrections.put(base, made))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    return folder


def odds(report: Report) -> dict[str, float]:
    return {d.id: d.confidence for d in report.differential}


def test_corrections_move_the_ranking_within_bounds_and_the_report_says_so(run: Path, tmp_path: Path) -> None:
    plain = report_on(run, NAN, tmp_path / "plain", "loss went NaN")
    first, second = plain.differential[0].id, plain.differential[1].id
    assert plain.meta.history == []
    place = Place(tmp_path / "moved")
    place.folder.mkdir()
    correct(place, times=1, said=first, truth=second)
    assert odds(report_on(run, NAN, place.folder, "loss went NaN")) == odds(plain), "one correction moves nothing"
    correct(place, times=40, said=first, truth=second)
    moved = report_on(run, NAN, place.folder, "loss went NaN")
    assert moved.meta.history == [f"this team corrected {first} to {second} 40 times: {second} +{STRONGEST:g}"]
    assert odds(moved)[second] > odds(plain)[second] and odds(moved)[first] < odds(plain)[first]
    growth = (odds(moved)[second] / odds(moved)[first]) / (odds(plain)[second] / odds(plain)[first])
    assert growth == pytest.approx(2.718281828**STRONGEST, rel=0.02), "neither more nor less than the bound"
    assert moved.root_cause.id == first, "evidence outweighs it"
    order = ["hypothesis", "likely", "confirmed"]
    assert order.index(moved.status) <= order.index(plain.status)
    assert odds(report_on(run, NAN, place.folder, "loss went NaN")) == odds(moved), (
        "the same evidence, the same ranking"
    )


def test_a_head_start_is_taken_from_the_score(run: Path, tmp_path: Path) -> None:
    from traindoctor.agent.core.playbook import playbooks
    from traindoctor.agent.core.types import Evidence, Hypothesis
    from traindoctor.agent.session.history.team import Team
    from traindoctor.agent.verdict.predicates import Facts
    from traindoctor.agent.verdict.steer import Sounds

    place = Place(tmp_path / "t")
    correct(place, times=9, said="none.insufficient_evidence", truth="dist.ib_link")
    team = Team.of(place.folder, "now", [])
    facts = Facts.of([Evidence(key="none.such", id="E1")])
    start = team.moved(Sounds(), playbooks(), facts, Workspace([run])).moved
    assert set(start) == {"dist.ib_link"} and set(start.values()) <= {STRONGEST, STRONGEST / 2}
    whole = ("effect", "mechanism", "link")
    near = Hypothesis("dist.ib_link", "", "", 0.9, 2.0 + start["dist.ib_link"], positive=True, parts=whole)
    rival = Hypothesis("dist.rank_died", "", "", 0.04, 1.5, positive=True)
    by_evidence = team.by_evidence([near, rival], lambda: None)
    assert by_evidence[0].score == pytest.approx(2.0), "what is weighed beside a model's vote is the evidence alone"


def test_evaluations_neither_read_nor_write_the_history(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = report_on(run, NAN, tmp_path / "plain", "loss went NaN")
    first, second = plain.differential[0].id, plain.differential[1].id
    shared = Place(tmp_path / "shared", shared=True)
    correct(shared, times=9, said=first, truth=second)
    monkeypatch.setenv("DOCTOR_HISTORY", str(shared.folder))
    before = (shared.database.read_bytes(), sorted(shared.folder.iterdir()))
    answer = evaluate_one(Task(run, "loss went NaN", tmp_path / "none.json"))
    report = Report.model_validate_json(answer.report)
    assert odds(report) == odds(plain) and report.meta.history == []
    assert (shared.database.read_bytes(), sorted(shared.folder.iterdir())) == before
    assert report_on(run, NAN, tmp_path / "s", "loss went NaN").meta.history, "a diagnosis reads it"


def test_a_history_that_cannot_be_used_costs_a_word_and_no_diagnosis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("DOCTOR_HISTORY", str(tmp_path / "file"))
    report = report_on(tmp_path / "run", HUB.format(day=1), tmp_path / "state")
    assert report.root_cause.id == "env.hub_access" and report.restart is not None
    told = [text for text in report.meta.degraded if "history" in text]
    assert len(told) == 1 and str(tmp_path / "file") in told[0] and "\n" not in told[0]


def test_a_history_that_somebody_holds_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from traindoctor.agent.session.history import team

    monkeypatch.setattr(team, "SECONDS", 0.4)
    state = tmp_path / "state"
    report_on(tmp_path / "first", HUB.format(day=1), state)
    with closing(sqlite3.connect(state / "history.sqlite", isolation_level=None)) as base:
        base.execute("BEGIN EXCLUSIVE")
        held = report_on(tmp_path / "run", HUB.format(day=2), state)
    assert held.root_cause.id == "env.hub_access"
    (told,) = held.meta.degraded
    assert "locked" in told and "goes on without it" in told
    assert rows(state) == 1


def test_what_only_answers_is_not_kept(tmp_path: Path) -> None:
    state = tmp_path / "state"
    report_on(tmp_path / "run", HUB.format(day=1), state)
    *_, last = diagnose(Workspace([tmp_path / "run"]), "what does Xid 79 mean?", state=state)
    assert isinstance(last, ReportReady) and last.report.status == "answer"
    assert rows(state) == 1


def test_a_further_diagnosis_in_a_session_replaces_its_row(tmp_path: Path) -> None:
    state, run = tmp_path / "state", tmp_path / "run"
    first = report_on(run, HUB.format(day=1), state)
    *_, last = diagnose(Workspace([run]), "why did it really die?", state=state, session=first.session)
    assert isinstance(last, ReportReady) and last.report.session == first.session
    assert rows(state) == 1
