"""Recorded conversations replayed on today's evidence: the verdicts hold, nothing is invented, the gate agrees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.agent.core.report import Report
from traindoctor.agent.doors.cli import main
from traindoctor.evals import case, exchanges
from traindoctor.evals.asked import Task
from traindoctor.evals.run import diagnose
from traindoctor.evals.score import cited_lines, invented

ROOT = Path(__file__).parents[2]
RECORDED = exchanges.load(ROOT / "evals/exchanges")
CASES = {c.id: c for c in case.find([ROOT / "evals/incidents", ROOT / "evals/threads"]) if c.id in RECORDED}
# one of each family at least, by their place in the alphabet; the others in `make soak`
FIRST = sorted({name.split("-")[0]: name for name in sorted(RECORDED, reverse=True)}.values())


def test_there_are_whole_diagnoses_of_many_families() -> None:
    assert set(CASES) == set(RECORDED) and len(RECORDED) >= 8
    assert len({name.split("-")[0] for name in RECORDED}) >= 8


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FIRST else pytest.mark.soak) for n in sorted(RECORDED)]
)
def test_a_recorded_diagnosis_holds(name: str) -> None:
    found, exchange = CASES[name], RECORDED[name]
    report = Report.model_validate_json(diagnose(Task(found.files, found.question, found.shell, None, exchange)).report)
    last = [c for a in exchange.answers for c in a.get("tool_calls", ()) if c["name"] == "diagnosis"][-1]
    assert report.meta.planner == "llm"
    assert report.root_cause.id == last["arguments"]["cause"]
    assert not list(invented(found, report.evidence, cited_lines(found.files, report.evidence)))
    assert all(s.cites or not any(c.isdigit() for c in s.text) for s in report.summary)
    assert report.meta.ranking is not None and report.meta.tokens.in_ > 0


def test_evidence_is_found_again_under_another_number() -> None:
    request = {"messages": [{"content": "E7 error.first=ValueError train.log:12 rank 3 | ValueError: x\n"
                             "E9 settings.asked.max_steps: looked for, not there (in a.yaml); default null\n"
                             "asked.precision = bf16 [E11 at a.yaml:3], not set [E12]"}]}  # fmt: skip
    assert exchanges.shown(request) == {
        "E7": "error.first train.log:12", "E9": "settings.asked.max_steps absent",
        "E11": "settings.asked.precision = bf16", "E12": "settings.asked.precision = not set",
    }  # fmt: skip
    said = {
        "tool_calls": [{"name": "diagnosis", "arguments": {"sentences": [{"text": "x", "cites": ["E40", "E41-E42"]}]}}]
    }
    old = exchanges.Exchange("any", (said,), {"E40": "error.first train.log:12", "E41": "gone x:1"})
    new = old.answer(request, 1)["tool_calls"][0]["arguments"]["sentences"][0]["cites"]
    assert new == ["E7", "E41-E42"]


def test_a_spool_becomes_an_exchange_and_comes_back(tmp_path: Path) -> None:
    (tmp_path / "0001.request.json").write_text(
        json.dumps({"messages": [{"content": "E7 error.first train.log:12 | x"}]})
    )
    (tmp_path / "0001.response.json").write_text(json.dumps({"content": "It is E7.", "tool_calls": []}))
    path = exchanges.save(exchanges.of_spool(tmp_path, "some-incident"), tmp_path / "out")
    again = exchanges.load(path.parent)["some-incident"]
    assert again.cited == {"E7": "error.first train.log:12"} and len(again.sizes) == 1
    path.write_text("[]")
    with pytest.raises(UsageError, match="no recorded exchange"):
        exchanges.load(path.parent)


def test_eval_shows_both_side_by_side(here: None, capsys: pytest.CaptureFixture) -> None:
    name = FIRST[0]
    folder = CASES[name].folder
    assert main(["eval", str(folder), "--replay", str(ROOT / "evals/exchanges"), "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "offline" in out and "the model gave 1 of 1 verdicts" in out
