"""The claim gate: what a sentence may say."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from traindoctor.agent.gate import faults
from traindoctor.agent.report import Sentence
from traindoctor.agent.types import Evidence
from traindoctor.agent.wording import sentence

NAN = Evidence(
    key="loss.first_nan_step",
    value=4012,
    file="logs/rank3.log",
    line=812,
    id="E1",
    rank=3,
    text="{'loss': nan, 'grad_norm': 31.2571, 'epoch': 0.4}",
)
ASKED = Evidence(key="question.text", value="my loss went NaN at step 4k", kind="asked", id="E2")
ALL = {"E1": NAN, "E2": ASKED}


@pytest.mark.parametrize(
    "text",
    ["The loss is nan from step 4012 on.", "logs/rank3.log:812 shows it.", "grad_norm reached 31.3 before.",
     "The line reads \u201c'grad_norm': 31.2571\u201d.", "rank 3 saw it first."],
)  # fmt: skip
def test_what_the_evidence_shows_may_be_said(text):
    assert faults(Sentence(text=text, cites=["E1"]), ALL) == []


@pytest.mark.parametrize(
    "text",
    ["The loss is nan from step 4013 on.", "logs/rank4.log shows it.", "learning_rate was too high.",
     "It says \u201cout of memory\u201d.", "The grad norm was 31.9.", "See `torch.nan_to_num`."],
)  # fmt: skip
def test_what_it_does_not_show_may_not(text):
    assert faults(Sentence(text=text, cites=["E1"]), ALL)


def test_citations_must_exist_and_the_question_cannot_be_cited():
    assert faults(Sentence(text="It broke.", cites=["E9"]), ALL)
    assert faults(Sentence(text="It broke.", cites=["E2"]), ALL)


def test_vocabulary_needs_no_evidence():
    said = Sentence(text="loss.fp16_overflow: FP16 range exceeded", cites=["E1"])
    assert faults(said, ALL)
    assert faults(said, ALL, ["loss.fp16_overflow", "FP16 range exceeded"]) == []


@given(text=st.text(max_size=300), value=st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text()))
@settings(max_examples=500)
@example(text="", value=1.00001)
@example(text="", value=1234.5)
@example(text="", value=999.96)
def test_our_own_sentences_pass_by_construction(text, value):
    e = Evidence(key="loss.spike_step", value=value, file="a.log", line=3, id="E1", text=text)
    reasons = faults(sentence(e), {"E1": e})
    assert not [r for r in reasons if r.startswith("says")] or any(c in text for c in '\u201c\u201d"`')
