"""The correction of confidences: it finds what is there, keeps sources apart, and says when it gains nothing."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from traindoctor.agent.core.errors import UsageError
from traindoctor.evals import calibration
from traindoctor.evals.confidence_fit import Correction, Stated, brier, ece, fit, halves, read, sources


def drawn(slope: float, bias: float, n: int = 2400) -> list[Stated]:
    """Verdicts whose truth is known: stated p, right as often as the correction says."""
    chance = random.Random(7)
    truth = Correction(slope, bias)
    stated = [chance.uniform(0.05, 0.97) for _ in range(n)]
    return [Stated(p, chance.random() < truth(p), f"project{i % 40}") for i, p in enumerate(stated)]


def test_the_fit_finds_the_two_numbers() -> None:
    found = fit(drawn(0.5, 1.0))
    assert found.slope == pytest.approx(0.5, abs=0.12)
    assert found.bias == pytest.approx(1.0, abs=0.12)


def test_a_half_that_is_always_right_does_not_run_away() -> None:
    found = fit([Stated(0.9, True, "a"), Stated(0.6, True, "b")])
    assert all(math.isfinite(v) and abs(v) < 10 for v in (found.slope, found.bias))


def test_a_correction_keeps_the_order_and_the_identity_changes_nothing() -> None:
    corrected = [Correction(0.5, -1.0)(p / 20) for p in range(1, 20)]
    assert corrected == sorted(corrected)
    assert Correction()(0.37) == 0.37


def test_halves_share_no_source_and_are_about_equal() -> None:
    stated = drawn(1.0, 0.0)
    first, second = halves(stated)
    assert not {s.source for s in first} & {s.source for s in second}
    assert len(first) + len(second) == len(stated)
    assert abs(len(first) - len(second)) < 0.1 * len(stated)


def test_measures_of_perfect_and_of_false_certainty() -> None:
    sure = [Stated(1.0, True, "a"), Stated(0.0, False, "b")]
    assert brier(sure, Correction()) == ece(sure, Correction()) == 0.0
    assert brier([Stated(1.0, False, "a")], Correction()) == 1.0


def test_confidences_that_can_be_believed_are_left_alone() -> None:
    found = calibration.judged(drawn(1.0, 0.0))
    assert not found["better"]
    assert "the identity is kept" in calibration.markdown(found)


def test_confidences_that_are_far_off_are_found_out() -> None:
    found = calibration.judged(drawn(0.4, -1.5))
    assert found["better"]
    assert "a correction would help" in calibration.markdown(found)


def test_a_thread_has_the_source_of_its_project_and_a_recorded_run_that_of_its_table() -> None:
    known = sources()
    assert known["ckpt-a-nodes-to-b-nodes"] == "verl-project/verl"
    assert any(s.startswith("recorders/") for s in known.values())


def test_questions_on_the_same_files_have_the_same_source(tmp_path: Path) -> None:
    rows = [{"id": i, "confidence": 0.5, "exact": True, "error": ""} for i in ("heron", "heron:2")]
    path = tmp_path / "evaluation.json"
    path.write_text(json.dumps({"incidents": rows}))
    assert len({s.source for s in read([path], {"heron": "recorders/data"})}) == 1


def test_a_file_that_is_no_evaluation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("[]")
    with pytest.raises(UsageError, match="no evaluation"):
        read([path], {})
    assert calibration.main([str(path)]) == 2


def test_a_page_that_cannot_take_the_figures_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"id": f"i{n}", "confidence": 0.5, "exact": n % 3 > 0, "error": ""} for n in range(40)]
    evaluation = tmp_path / "evaluation.json"
    evaluation.write_text(json.dumps({"incidents": rows}))
    (tmp_path / "page.md").write_text("no marks\n")
    for page in ("page.md", "not-there.md"):
        assert calibration.main([str(evaluation), "--into", str(tmp_path / page)]) == 2
        told = capsys.readouterr()
        assert told.out == "" and told.err.count("\n") == 1 and "page" in told.err
    assert (tmp_path / "page.md").read_text() == "no marks\n"
