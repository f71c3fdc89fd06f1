"""The questions that retrieval is measured by, and the measuring itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from traindoctor.agent.core.playbook import causes
from traindoctor.agent.doors.cli import main
from traindoctor.evals.retrieval import QUESTIONS, lines, measure
from traindoctor.index.build import build
from traindoctor.index.places import Sources


def test_there_are_enough_questions_and_they_name_causes() -> None:
    data = yaml.safe_load(QUESTIONS.read_text(encoding="utf-8"))
    asked = [q for name in ("playbooks", "documents") for q, _ in data[name]] + data["nothing"]
    assert len(asked) >= 150 and len(data["nothing"]) >= 30
    assert len(set(asked)) == len(asked) and not set(asked) & {q for part in data["calibration"].values() for q in part}
    known = set(causes())
    named = {cause for _, wanted in data["playbooks"] for cause in wanted}
    assert named <= known and known - named <= {"none.insufficient_evidence"}


@pytest.fixture
def small(tmp_path: Path) -> tuple[Sources, Path]:
    """Two playbooks, one document, three questions: one found first, one found second, one refused."""
    for slug, cause, body in (
        ("loss/a", "loss.fp16_overflow", "The loss scale falls and falls; walrus."),
        ("loss/b", "loss.bad_batch", "One bad sample poisons a step; the loss scale stays; walrus walrus pelican."),
    ):
        path = tmp_path / "knowledge" / f"{slug}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\ncause: {cause}\ntitle: {slug}\n---\n{body}\n")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "guide.md").write_text("# Notes\n\n## Rack\n\nThe pump fails.\n\n## Door\n\nThe door key.\n")
    questions = {
        "playbooks": [["loss scale falls", ["loss.fp16_overflow"]], ["walrus pelican", ["loss.fp16_overflow"]],
                      ["zebra stripes", ["loss.bad_batch"]]],
        "documents": [["pump fails", ["guide > Rack"]], ["pump fails", ["guide > Door"]]],
        "nothing": ["sourdough bread", "walrus walrus"],
    }  # fmt: skip
    (tmp_path / "questions.yaml").write_text(yaml.safe_dump(questions))
    return Sources(tmp_path / "knowledge", tmp_path / "documents"), tmp_path


def test_scores_count_places_over_different_playbooks_and_sections(small: tuple[Sources, Path]) -> None:
    sources, folder = small
    table = measure(sources, folder / "cache", folder / "questions.yaml")
    assert list(table) == ["words"], "without an index there are no vectors to measure"
    playbooks, nothing = table["words"]["playbooks"], table["words"]["nothing"]
    assert (playbooks.asked, playbooks.recall_1, playbooks.recall_3) == (3, 0.333, 0.667)
    assert playbooks.mrr == 0.5 and playbooks.missed == ("zebra stripes",) and playbooks.refused == 0.333
    assert nothing.refused == 0.5, "an answer to what nobody asked of the playbooks is a false one"
    assert len(lines(table)) == 1 + len(table["words"])


def test_words_alone_find_most_of_the_built_in_playbooks(tmp_path: Path) -> None:
    table = measure(Sources(documents=tmp_path), tmp_path / "cache")["words"]
    assert table["playbooks"].recall_3 >= 0.75
    assert table["nothing"].refused >= 0.9


@pytest.mark.soak
def test_words_and_meaning_find_nearly_all_of_the_built_in_playbooks(tmp_path: Path) -> None:
    sources = Sources(documents=tmp_path / "documents")
    assert build(sources, tmp_path / "cache").vectors
    table = measure(sources, tmp_path / "cache")
    assert table["both"]["playbooks"].recall_3 >= 0.9 and table["both"]["nothing"].refused >= 0.9
    for way in ("words", "vectors"):
        assert table["both"]["playbooks"].mrr > table[way]["playbooks"].mrr, "the best way is the one that is used"


def test_measure_by_command(small: tuple[Sources, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, folder = small
    assert main(["index", "measure", str(folder / "questions.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["words"]["nothing"]["asked"] == 2
    (folder / "bad.yaml").write_text("playbooks: 3\n")
    assert main(["index", "measure", str(folder / "bad.yaml")]) == 2
    assert main(["index", "measure", str(folder / "none.yaml")]) == 2
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 2 and all(line.startswith("doctor: ") for line in errors)
