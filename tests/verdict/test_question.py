"""What people say and the symptom it names."""

import pytest
from traindoctor.agent.verdict.meaning import asked


@pytest.mark.parametrize(
    ("question", "named", "not_named"),
    [
        ("loss went NaN at step 4k", "nan", "slow"),
        ("It runs without any error, yet the loss is stuck at 2.3", "not_learning", "crash"),
        ("the job hangs after 30 minutes, no traceback", "hang", "crash"),
        ("is my run ok?", "healthy_check", "crash"),
        ("tokens per second dropped to a third", "slow", "nan"),
        ("training dies with an error on the second node", "crash", "healthy_check"),
    ],
)
def test_symptoms(question, named, not_named):
    found = {e.value for e in asked(question) if e.key == "question.symptom"}
    assert named in found and not_named not in found


def test_the_step_is_read_and_everything_is_kind_asked():
    found = asked("loss went NaN at step 4k")
    assert [e.value for e in found if e.key == "question.step"] == [4000]
    assert {e.kind for e in found} == {"asked"}
    assert asked("  ") == []
