"""Three answers: true, false, missing; against values, other keys, ranks and absences."""

import pytest
from pydantic import ValidationError
from traindoctor.agent.core.playbook import Predicate
from traindoctor.agent.core.types import Evidence
from traindoctor.agent.verdict.predicates import Facts, judge


def e(key, value=True, **more):
    return Evidence(key=key, value=value, id=f"{key}={value}", **more)


def state(facts, **predicate):
    return judge(Predicate(**predicate), Facts.of(facts)).state


@pytest.mark.parametrize(
    ("op", "value", "expected"),
    [
        ("gt", 3, "true"), ("gt", 5, "false"), ("lt", "10KiB", "true"), ("between", [1, 5], "true"), ("eq", 4, "true"),
        ("ne", 4, "false"), ("in", [1, 4], "true"), ("contains", "4", "true"), ("matches", "^4", "true"),
    ],
)  # fmt: skip
def test_operators_against_a_value(op, value, expected):
    assert state([e("a.b", 4)], key="a.b", op=op, value=value) == expected


def test_a_key_nobody_saw_is_missing():
    assert state([], key="a.b", op="gt", value=1) == "missing"
    assert state([], key="a.b", op="exists") == "missing"


def test_looked_and_not_there_is_an_answer():
    absent = e("settings.asked.gradient_clip_norm", None, kind="absent")
    assert state([absent], key=absent.key, op="absent") == "true"
    assert state([absent], key=absent.key, op="exists") == "false"
    assert state([e(absent.key, 1.0)], key=absent.key, op="absent") == "false"


def test_against_another_key_on_the_same_rank():
    found = [e("m.a", 5, rank=0), e("m.b", 3, rank=1)]
    assert state(found, key="m.a", op="gt", than="m.b") == "true"
    assert state(found, key="m.a", op="gt", than="m.b", over="same_rank") == "missing"


def test_all_evidence_of_a_key():
    found = [e("m.a", 5), e("m.a", 1)]
    assert state(found, key="m.a", op="gt", value=2) == "true"
    assert state(found, key="m.a", op="gt", value=2, over="all") == "false"


@pytest.mark.parametrize(
    "wrong", [{"op": "gt"}, {"op": "between", "value": 3}, {"op": "in", "value": 3}, {"op": "near"}]
)
def test_ill_formed_predicates_are_refused(wrong):
    with pytest.raises(ValidationError):
        Predicate(key="a.b", **wrong)
