"""Scoring: pure functions over a report, and a runner that keeps the labels to itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import KnowledgeError, UsageError
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.core.report import CitedEvidence, Differential, Patch, Report, ReportFix, RootCause
from traindoctor.evals import table
from traindoctor.evals.case import Case, find, load
from traindoctor.evals.run import evaluate
from traindoctor.evals.score import score, unanswered

ROOT = Path(__file__).resolve().parent.parent.parent
INCIDENTS = ROOT / "evals" / "incidents"
LOG = "step 1 loss 2.0\nstep 2 loss nan\nlast line\n"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """An incident of two decisive lines."""
    return incident(tmp_path, "nan-run", expected=["loss.fp16_overflow", "loss.lr_too_high"])


def incident(folder: Path, name: str, expected: list[str]) -> Case:
    """An incident written to disk and read back."""
    (folder / name / "files").mkdir(parents=True)
    (folder / name / "files" / "train.log").write_text(LOG)
    labels = {
        "id": name, "family": expected[0].split(".")[0], "difficulty": "easy", "question": "Why?\n", "fix": "",
        "expected": expected, "acceptable": ["loss.layer_numerics"],
        "evidence": [{"file": "train.log", "text": "loss nan"}, {"file": "train.log", "text": "last"}],
        "fix_terms": [["bf16", "bfloat16"], ["clip"]],
    }  # fmt: skip
    (folder / name / "incident.yaml").write_text(json.dumps(labels))
    return load(folder / name)


def line(number: int, text: str, file: str = "train.log") -> CitedEvidence:
    """Evidence that cites a line."""
    return CitedEvidence(id=f"E{number}", key="log.line", kind="line", file=file, line=number, text=text)


def report(cause: str | None, *rivals: str, **more: object) -> Report:
    """A report that names a cause."""
    rows = [Differential(id=c, confidence=0.1) for c in (cause, *rivals) if c]
    return Report(status="likely", root_cause=RootCause(id=cause, confidence=0.6), differential=rows, **more)  # pyright: ignore


@pytest.mark.parametrize(
    ("cause", "rivals", "exact", "lenient", "top3"),
    [
        ("loss.fp16_overflow", (), True, True, True),
        ("loss.lr_too_high", (), True, True, True),  # any of the expected ones is right
        ("loss.layer_numerics", (), False, True, False),
        ("data.schema", ("env.nan", "loss.lr_too_high"), False, False, True),
        ("data.schema", ("env.nan", "env.abi", "loss.lr_too_high"), False, False, False),
        (None, (), False, False, False),
    ],
)
def test_causes_are_compared_by_equality(
    case: Case, cause: str | None, rivals: tuple[str, ...], exact: bool, lenient: bool, top3: bool
) -> None:
    found = score(case, report(cause, *rivals))
    assert (found.exact, found.lenient, found.top3) == (exact, lenient, top3)


def test_a_decisive_line_counts_when_that_very_line_is_cited(case: Case) -> None:
    good = [line(2, "step 2 loss nan"), line(3, "last line")]
    assert score(case, report("x", evidence=good)).marks_cited == 2
    assert score(case, report("x", evidence=good[:1])).missed_marks == ["train.log: last"]
    wrong_line = [line(1, "step 2 loss nan")]
    assert score(case, report("x", evidence=wrong_line)).marks_cited == 0
    absent = [CitedEvidence(id="E1", key="k", kind="absent", file="train.log", line=2, text="step 2 loss nan")]
    assert score(case, report("x", evidence=absent)).marks_cited == 0


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (line(2, "step 2 loss 0.1"), "the line reads"),
        (line(9, "x"), "no such line"),
        (line(1, "x", "other.log"), "no such file"),
        (line(1, "id: nan-run", "../incident.yaml"), "no such file"),
        (line(1, "x").model_copy(update={"line": None}), "without saying which"),
        (CitedEvidence(id="E1", key="k", kind="command", argv=["nvidia-smi"]), "not recorded"),
        (CitedEvidence(id="E1", key="k", kind="binary", file="model.pt", member="w"), "no such file"),
    ],
)
def test_invented_citations_are_named(case: Case, evidence: CitedEvidence, why: str) -> None:
    found = score(case, report("x", evidence=[evidence]))
    assert len(found.invented) == 1
    assert why in found.invented[0]


def test_what_stands_in_the_file_is_not_invented(case: Case) -> None:
    log = case.files / "long.log"
    log.write_bytes(b"\xff broken\r\n" + b"y" * 9000 + b"\n")
    shown = [line(1, "\ufffd broken", "long.log"), line(2, "y" * 4096, "long.log").model_copy(update={"cut": True})]
    (case.folder / "shell.json").write_text(json.dumps([{"argv": ["df"], "code": 0}]))
    shown.append(CitedEvidence(id="E3", key="k", kind="command", argv=["df"]))
    assert score(case, report("x", evidence=shown)).invented == []
    empty = line(2, "", "long.log").model_copy(update={"cut": True})
    assert len(score(case, report("x", evidence=[empty])).invented) == 1  # nothing quoted is no quotation


def test_a_file_is_found_by_the_name_that_a_report_shows(case: Case) -> None:
    (case.files / "two\nlines\r.log").write_text("only line\n")
    assert score(case, report("x", evidence=[line(1, "only line", "two\\nlines\\r.log")])).invented == []
    wrong = [line(1, "another", "two\\nlines\\r.log"), line(1, "only line", "three\\nlines.log")]
    assert len(score(case, report("x", evidence=wrong)).invented) == 2


def test_fix_terms_want_a_word_of_every_list(case: Case) -> None:
    half = [ReportFix(title="Use BF16")]
    both = [*half, ReportFix(title="Limit", commands=["--clip 1.0"])]
    assert score(case, report("loss.lr_too_high", fixes=half)).fix is False
    assert score(case, report("loss.lr_too_high", fixes=both)).fix is True
    assert score(case, report("loss.bad_init", fixes=both)).fix is False  # the words of a wrong verdict help nobody


def test_of_a_patch_only_what_it_writes_counts_as_its_words(case: Case) -> None:
    def patched(diff: str) -> bool | None:
        patch = Patch(id="P1", file="c.yaml", sha256="", diff=diff)
        return score(case, report("loss.lr_too_high", fixes=[ReportFix(title="Use BF16")], patches=[patch])).fix

    assert patched("--- a/clip.yaml\n+++ b/clip.yaml\n@@\n clip: 3\n-clip: 1\n+norm: 1\n") is False
    assert patched("--- a/c.yaml\n+++ b/c.yaml\n@@\n norm: 1\n+clip: 1\n") is True


def test_an_incident_that_names_no_repair_measures_none(case: Case) -> None:
    bare = replace(case, fix_terms=())
    scores = [score(bare, report("loss.lr_too_high")), score(case, report("loss.lr_too_high"))]
    assert scores[0].fix is None and table.summary(scores)["fix"] == 0.0


def test_the_verdict_stands_on_its_own_row_and_is_one_of_the_first_three(case: Case) -> None:
    rows = [Differential(id="data.schema", confidence=0.4, supported_by=["E2"]),
            Differential(id="env.nan", confidence=0.3), Differential(id="loss.lr_too_high", confidence=0.2)]  # fmt: skip
    told = Report(status="likely", root_cause=RootCause(id="loss.bad_init", confidence=0.1), differential=rows,
                  evidence=[line(2, "step 2 loss nan")])  # fmt: skip
    found = score(case, told)
    assert found.support == 0 and not found.top3 and found.top == ("loss.bad_init", "data.schema", "env.nan")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fix_terms", ["batch", "lr"]), ("fix_terms", [[]]), ("fix_terms", "batch"), ("evidence", ["train.log"]),
        ("evidence", [{"file": "train.log", "text": " "}]), ("expected", 3), ("also_asked", "Why?"),
        ("first_failure", [3]), ("first_failure", {"rank": True}), ("acceptable", {"a": 1}),
    ],
)  # fmt: skip
def test_labels_of_another_form_are_refused_in_a_line(key: str, value: object, case: Case) -> None:
    path = case.folder / "incident.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(KnowledgeError, match=rf"incident.yaml:1: {key} is to be ") as told:
        load(case.folder)
    assert "\n" not in str(told.value)


def test_broken_yaml_is_told_with_its_line(case: Case) -> None:
    (case.folder / "incident.yaml").write_text("id: a\nfamily: [b\n")
    with pytest.raises(KnowledgeError, match=r"incident.yaml:3: ") as told:
        load(case.folder)
    assert "\n" not in str(told.value)


def test_false_alarms_and_abstentions(tmp_path: Path) -> None:
    healthy = incident(tmp_path, "h", ["none.healthy"])
    assert score(healthy, report("loss.lr_too_high")).false_alarm
    assert not score(healthy, report("none.insufficient_evidence")).false_alarm
    ill = incident(tmp_path, "i", ["loss.lr_too_high"])
    assert score(ill, report("none.insufficient_evidence")).wrongly_silent
    totals = table.summary([score(healthy, report("none.healthy")), unanswered(ill, "crashed")])
    assert (totals["incidents"], totals["answered"], totals["exact"], totals["false_alarms"]) == (2, 1, 0.5, 0)


def test_the_table_and_the_data_name_every_miss(case: Case) -> None:
    scores = [score(case, report("data.schema", "loss.lr_too_high")), unanswered(case, "RuntimeError: boom")]
    text = "\n".join(table.as_lines(scores))
    assert "^ nan-run: said data.schema (likely, 0.60); expected loss.fp16_overflow or loss.lr_too_high" in text
    assert "said RuntimeError: boom" in text
    data = table.as_data(scores)
    assert json.loads(json.dumps(data))["total"]["top3"] == 0.5
    assert set(data["by_family"]) == {"loss"}


def test_broken_incidents_are_told_with_their_file(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "incident.yaml").write_text("id: [")
    with pytest.raises(KnowledgeError, match=r"bad/incident\.yaml:[12]: cannot be read"):
        find([tmp_path])
    with pytest.raises(UsageError, match="no such path"):
        find([tmp_path / "none"])
    with pytest.raises(UsageError, match="no incident in"):
        find([tmp_path / "bad" / ".."] and [ROOT / "docs"])


def test_every_bundled_incident_is_sound() -> None:
    known = causes()
    cases = find([INCIDENTS, ROOT / "evals" / "demo"])
    assert len(cases) >= 43
    for c in cases:
        assert set(c.expected) | set(c.acceptable) <= set(known), c.id
        for mark in c.marks:
            lines = (c.files / mark.file).read_text(errors="replace").split("\n")
            assert any(mark.text in text for text in lines), f"{c.id}: {mark}"


def test_the_runner_diagnoses_and_a_crash_is_a_score(tmp_path: Path, case: Case) -> None:
    empty = incident(tmp_path, "nothing-there", ["loss.lr_too_high"])
    (empty.files / "train.log").unlink()
    told: list[str] = []
    scores = evaluate([case, empty], jobs=2, told=lambda s: told.append(s.id), keep=tmp_path / "kept")
    assert [s.id for s in scores] == ["nan-run", "nothing-there"]
    assert set(told) == {"nan-run", "nothing-there"}
    assert scores[0].error == ""
    assert scores[0].invented == []
    assert scores[1].error.startswith("NothingReadable")
    kept = Report.model_validate_json((tmp_path / "kept" / "nan-run.json").read_text())
    assert kept.question == "Why?"
    assert "nan-run" not in kept.to_json()  # not even the incident's name reaches the diagnosis
