"""The rivals answer in reports of the same form, from files and question alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.core.report import Report
from traindoctor.agent.llm.model_settings import ModelSettings
from traindoctor.evals.asked import Task
from traindoctor.evals.case import load
from traindoctor.evals.endpoint import Say, ScriptedEndpoint
from traindoctor.evals.run import diagnose
from traindoctor.evals.score import score
from traindoctor.evals.solvers import grep
from traindoctor.evals.solvers.paste import pasted, read

CASE = load(Path(__file__).parents[2] / "evals" / "incidents" / "memory-gemma2-9b-squad-step10")


def answered(solver: str, model: ModelSettings | None = None) -> Report:
    task = Task(CASE.files, CASE.question, CASE.shell, model, solver=solver)
    return Report.model_validate_json(diagnose(task).report)


def test_grep_names_the_first_row_that_matches_and_its_line() -> None:
    assert {cause for cause, _ in grep.rows()} <= set(causes())
    report = answered("grep")
    assert report.root_cause.id == "memory.batch_too_large"  # the line taken at its word
    found = score(CASE, report)
    assert found.invented == [] and found.cited > 0 and not found.exact


def test_retrieval_names_playbooks_and_cites_the_lines_it_asked_with() -> None:
    report = answered("retrieval")
    assert report.root_cause.id in causes()
    assert len(report.differential) > 1
    assert score(CASE, report).invented == []


def test_a_model_gets_the_files_pasted_and_is_taken_at_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"cause": CASE.expected[0], "rivals": ["memory.batch_too_large"], "confidence": 0.9, "fix": "Checkpoint them.",
            "lines": [{"file": CASE.marks[0].file, "line": 1, "text": "a line that does not stand there"}]}  # fmt: skip
    with ScriptedEndpoint([Say(f"Here you are:\n```json\n{json.dumps(said)}\n```")]) as server:
        settings = ModelSettings("scripted", base_url=server.url, api_key="none", price_in=1.0, price_out=2.0)
        found = score(CASE, answered("paste", settings))
        (request,) = server.requests
    sent = json.dumps(request.body)
    assert CASE.question in request.body["messages"][1]["content"] and CASE.marks[0].file in sent
    assert CASE.id not in sent and "expected" not in sent
    assert found.exact and found.confidence == 0.9 and len(found.invented) == 1
    assert found.model_calls == 1 and found.tokens > 0 and found.cost


@pytest.mark.parametrize("text", ["", "no idea", "{", '{"cause": 7}', "[1]", '{"confidence": "high"}'])
def test_what_is_no_answer_cannot_tell(text: str) -> None:
    report = read(text)
    assert report.root_cause.id == "none.insufficient_evidence" and report.meta.degraded


def test_the_ends_of_long_files_are_pasted_with_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    (tmp_path / "config.yaml").write_text("lr: 1\n")
    (tmp_path / "weights.bin").write_bytes(b"\0" * 100)
    shown = dict(pasted(tmp_path, 2000))
    assert set(shown) == {"config.yaml", "train.log"}
    assert "1: lr: 1" in shown["config.yaml"]
    assert "5000: line 5000" in shown["train.log"] and sum(map(len, shown.values())) <= 2000
