"""A repair in a run's own numbers: products kept, bounds respected, nothing of another site."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.core.playbook import Fix, playbooks
from traindoctor.agent.repair.patching.spelling import REMOVE
from traindoctor.agent.repair.treatment.recipe import MICRO, STEPS, recipe, same

HALVE = Fix.model_validate({"title": "halve", "settings": {MICRO: {"multiply": 0.5}, STEPS: {"multiply": 2.0}}})


@given(st.integers(1, 4096), st.integers(1, 512))
def test_a_smaller_micro_batch_keeps_the_global_batch(micro: int, steps: int) -> None:
    made = recipe(HALVE, {MICRO: micro, STEPS: steps}.get)
    if micro == 1:
        assert not made.values and "is 1 already" in made.open[MICRO]
    else:
        assert made.values[MICRO] * made.values[STEPS] == micro * steps
        assert 1 <= made.values[MICRO] <= max(1, micro // 2)


@pytest.mark.parametrize("micro", [None, "auto", True, -1, 0.5])
def test_a_batch_that_is_no_count_is_left_to_the_user(micro: Any) -> None:
    made = recipe(HALVE, {MICRO: micro}.get)
    assert not made.values and made.open


@pytest.mark.parametrize(
    ("change", "now", "becomes"),
    [
        ({"at_least": 7200}, 600, 7200), ({"at_least": 7200}, 10800, 10800), ({"at_least": 7200}, None, 7200),
        ({"at_most": 4}, 16, 4), ({"at_most": 4}, 2, 2), ({"at_most": 4}, 0, 4), ({"at_most": 4}, None, 4),
        ({"multiply": 0.5}, 9, 4), ({"multiply": 0.5}, 1, 1), ({"remove": True}, 3, REMOVE), ({"set": 5}, 3, 5),
    ],
)  # fmt: skip
def test_bounds_move_only_what_lies_outside(change: dict[str, Any], now: Any, becomes: Any) -> None:
    fix = Fix.model_validate({"title": "t", "settings": {"dataloader_workers": change}})
    assert recipe(fix, {"dataloader_workers": now}.get).values == {"dataloader_workers": becomes}


@pytest.mark.parametrize("now", [None, -1, 0, "auto", True])
def test_a_factor_needs_a_number_that_counts(now: Any) -> None:
    fix = Fix.model_validate({"title": "t", "settings": {"max_steps": {"multiply": 10.0}}})
    made = recipe(fix, {"max_steps": now}.get)
    assert not made.values and "max_steps" in made.open


def test_warmup_is_counted_in_steps_where_the_run_counts_so() -> None:
    fix = Fix.model_validate({"title": "t", "settings": {"warmup_ratio": {"at_least": 0.03}}})
    assert recipe(fix, {"max_steps": 10_000, "warmup_steps": 10}.get).values == {"warmup_steps": 300}
    assert recipe(fix, {"max_steps": 10_000, "warmup_steps": 500}.get).values == {"warmup_steps": 500}
    assert recipe(fix, {"warmup_ratio": 0.01}.get).values == {"warmup_ratio": 0.03}


def test_a_product_of_what_is_not_known_is_left_open() -> None:
    change = {"product_of": ["rollout_batch_size", "samples_per_prompt"]}
    fix = Fix.model_validate({"title": "t", "settings": {"global_batch_size": change}})
    known = {"rollout_batch_size": 32, "samples_per_prompt": 8}
    assert recipe(fix, known.get).values == {"global_batch_size": 256}
    assert "global_batch_size" in recipe(fix, {"rollout_batch_size": 32}.get).open


def test_what_depends_on_the_site_is_never_a_value() -> None:
    for playbook in playbooks():
        for fix in playbook.fixes:
            for value in recipe(fix, lambda name: None).values.values():
                assert not (isinstance(value, str) and "<" in value), (playbook.slug, fix.title)
            for name, value in fix.env.items():
                assert not (value or "").startswith(("/", "eth", "mlx")), (playbook.slug, name)


def test_off_and_absent_are_one() -> None:
    assert same(None, False) and same(False, REMOVE) and same(None, REMOVE)
    assert not same(None, True) and not same(True, 1) and not same(0, False)
