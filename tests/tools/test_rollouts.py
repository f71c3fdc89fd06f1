"""Rollouts as runs write them down: age of the policy, whose tokens count, right answers, parts of a reward."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from traindoctor.agent.reading.curves.rollout_rows import counts_foreign, ends_right
from traindoctor.agent.tools.curves.rollouts_tools import inspect_rollouts

from tests.tools.captured import look


def rows(*objects: dict) -> str:
    return "".join(json.dumps(o) + "\n" for o in objects)


def versions(lag: int, learner: str = "trainer_version", writer: str = "rollout_version") -> str:
    return rows(*({"step": i, "reward": 0.1 * (i % 3), learner: i, writer: max(0, i - lag)} for i in range(40)))


def test_old_weights_by_two_versions(tmp_path: Path) -> None:
    assert look(inspect_rollouts, tmp_path, metrics_jsonl=versions(20)).one("rl.version_lag") == 20


def test_old_weights_by_other_names(tmp_path: Path) -> None:
    nested = rows(*({"step": i, "perf": {"policy_version": i, "sampler_version": i // 16 * 16}} for i in range(40)))
    assert look(inspect_rollouts, tmp_path, metrics_jsonl=nested).one("rl.version_lag") == 15


def test_a_printed_staleness_in_a_table(tmp_path: Path) -> None:
    text = "step,reward,staleness\n" + "".join(f"{i},{i % 3},{i % 12}\n" for i in range(30))
    assert look(inspect_rollouts, tmp_path, metrics_csv=text).one("rl.version_lag") == 11


def test_one_update_behind_is_ordinary(tmp_path: Path) -> None:
    assert not look(inspect_rollouts, tmp_path, metrics_jsonl=versions(1)).values("rl.version_lag")


def test_versions_of_software_are_no_age(tmp_path: Path) -> None:
    text = rows(*({"step": i, "dataset_version": 3, "rollout_version": 0, "reward": 0.5} for i in range(10)))
    assert not look(inspect_rollouts, tmp_path, metrics_jsonl=text).values("rl.version_lag")


def test_more_tokens_in_the_loss_than_written(tmp_path: Path) -> None:
    text = "step,reward,response_mask_sum,assistant_tokens\n" + "".join(f"{i},0.{i},{90 + i},30\n" for i in range(9))
    assert look(inspect_rollouts, tmp_path, metrics_csv=text).one("rl.loss_tokens_over_own") > 3


def test_as_many_tokens_in_the_loss_as_written(tmp_path: Path) -> None:
    text = rows(*({"step": i, "reward": 0.5, "loss_tokens": 64 + i, "generated_tokens": 64 + i} for i in range(9)))
    assert not look(inspect_rollouts, tmp_path, metrics_jsonl=text).values("rl.loss_tokens_over_own")


def turns(mark: str, counted: int) -> str:
    words = ["ask", "<tool_call>", "run", "</tool_call>", mark, "7", "8", "so", "7"]
    mask = [0, 1, 1, 1, counted, counted, counted, 1, 1]
    return rows(*({"step": i, "tokens": words, "loss_mask": mask, "reward": i % 2} for i in range(6)))


def test_a_mask_over_what_the_tool_said(tmp_path: Path) -> None:
    for mark in ("<tool_response>", "tool:", "Observation:", "<information>"):
        assert look(inspect_rollouts, tmp_path, rollouts_jsonl=turns(mark, 1)).one("rl.mask_over_tool") == "6 of 6"


def test_a_mask_that_leaves_the_tool_out(tmp_path: Path) -> None:
    for mark in ("<tool_response>", "tool:", "and"):
        assert not look(inspect_rollouts, tmp_path, rollouts_jsonl=turns(mark, 0)).values("rl.mask_over_tool")
    assert not look(inspect_rollouts, tmp_path, rollouts_jsonl=turns("and", 1)).values("rl.mask_over_tool")


def answers(form: str, reward: float) -> str:
    return rows(*({"completion": form.format(i + i % 2), "answer": str(i), "reward": reward} for i in range(12)))


def test_right_answers_without_reward(tmp_path: Path) -> None:
    for form in ("The result is {}.", "#### {}", "so x = **{}**"):
        seen = look(inspect_rollouts, tmp_path, samples_jsonl=answers(form, 0.0))
        assert seen.one("rl.right_answer_unrewarded") == "6 of 12"


def test_wrong_answers_without_reward_and_right_ones_with(tmp_path: Path) -> None:
    assert not look(inspect_rollouts, tmp_path, samples_jsonl=answers("it is {} or so, I think", 0.0)).evidence
    assert not look(inspect_rollouts, tmp_path, samples_jsonl=answers("The result is {}.", 1.0)).evidence


def test_a_part_of_the_reward_that_never_moves(tmp_path: Path) -> None:
    head = "step,reward,rewards/format/mean,rewards/format/std,rewards/correct/mean,rewards/correct/std\n"
    still = head + "".join(f"{i},0.{i},0.{i},0.1,0,0\n" for i in range(1, 9))
    assert look(inspect_rollouts, tmp_path, metrics_csv=still).values("reward.component_zero") == ["correct"]
    moving = head + "".join(f"{i},0.{i},0.{i},0,0.{i},0\n" for i in range(1, 9))  # spreads of zero are no parts
    assert not look(inspect_rollouts, tmp_path, metrics_csv=moving).values("reward.component_zero")


@given(st.dictionaries(st.sampled_from(["tokens", "mask", "loss_mask", "completion", "answer", "reward"]), st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20), lambda x: st.lists(x, max_size=6), max_leaves=8
)))  # fmt: skip
def test_any_row_is_read_without_a_crash(row: dict) -> None:
    assert counts_foreign(row) in (None, True, False)
    judged = ends_right(row)
    assert judged is None or isinstance(judged[1], float)
