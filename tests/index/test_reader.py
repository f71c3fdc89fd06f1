"""The reader that has learnt: what it makes of texts that it never saw, and of a model that is missing or damaged."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.core.playbook import causes
from traindoctor.evals.reader.train import Case, cases, measured, trained
from traindoctor.index import reader


def test_cases_of_an_author_that_it_never_saw() -> None:
    table = measured(reader.load(), cases(held_out=True))
    count, first, three = (sum(row[i] for row in table.values()) for i in range(3))
    assert count > 400 and first / count > 0.7 and three / count > 0.85


def test_every_cause_is_a_class() -> None:
    assert set(reader.load().causes) == set(causes())


@given(st.text(max_size=400))
def test_any_text_gives_probabilities_that_add_up(text: str) -> None:
    found = reader.read(text)
    assert not found if not text.strip() else math.isclose(sum(map(math.exp, found.values())), 1.0, abs_tol=1e-4)


@pytest.mark.parametrize(
    "content", [b"", b"doctor-reader/0\n", reader.MAGIC + b"{}\n", reader.MODEL.read_bytes()[:5000]]
)
def test_a_missing_or_damaged_model_says_nothing(tmp_path: Path, content: bytes) -> None:
    assert reader.read("loss is nan", tmp_path / "none.bin") == {}
    (tmp_path / "reader.bin").write_bytes(content)
    assert reader.read("loss is nan", tmp_path / "reader.bin") == {}


def test_training_is_the_same_each_time_and_a_saved_model_reads_alike(tmp_path: Path) -> None:
    rows = [("a.one", "the loss is nan after a step"), ("b.two", "out of memory on the first batch"), ("a.one", "nan again"),
            ("b.two", "memory ran out"), ("c.three", "a rank hangs in a collective"), ("c.three", "all ranks wait, one hangs")]  # fmt: skip
    known = [Case(cause, text) for cause, text in rows] * 2
    one, other = trained(known), trained(known)
    assert (one.weights == other.weights).all() and (one.bias == other.bias).all()
    reader.save(one, tmp_path / "m.bin")
    text = "why does the loss become nan"
    assert reader.read(text, tmp_path / "m.bin") == pytest.approx(one.log_probabilities(text))
    assert max(one.log_probabilities(text).items(), key=lambda item: item[1])[0] == "a.one"
