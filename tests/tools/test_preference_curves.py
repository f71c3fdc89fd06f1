"""Curves of preference training and of a policy's loss that say what moved: nothing, no token, the penalty alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from traindoctor.agent.reading.run.workspace import Workspace
from traindoctor.agent.tools.curves.metrics_tools import find_anomalies
from traindoctor.agent.tools.curves.paces_tools import compare_paces
from traindoctor.agent.tools.settings.settings_tools import lint_settings

from tests.tools.captured import look


def keys(folder: Path, text: str) -> set[str]:
    (folder / "train.log").write_text(text)
    return {e.key for e in find_anomalies(Workspace([folder])).evidence}


def dpo(chosen: list[float], logps: float) -> str:
    return "".join(
        f"{{'loss': 0.6931, 'rewards/chosen': {c}, 'rewards/rejected': {-c}, 'rewards/margins': {2 * c},"
        f" 'logps/chosen': {logps and logps - i}, 'learning_rate': 1e-06, 'epoch': {i / 100}}}\n"
        for i, c in enumerate(chosen)
    )


def test_rewards_that_stay_exactly_zero_mean_a_policy_that_is_its_reference(tmp_path: Path) -> None:
    assert "reward.no_margin" in keys(tmp_path, dpo([0.0] * 6, -80.0))
    found = keys(tmp_path, dpo([0.0] * 6, 0.0))
    assert "reward.no_answer_tokens" in found and "reward.no_margin" not in found


@pytest.mark.parametrize("chosen", [[0.0] * 3, [0.0, 0.0, 0.0, 0.0002, 0.0008], [0.0, 0.01, -0.02, 0.03]])
def test_a_start_at_zero_and_small_rewards_are_nothing(tmp_path: Path, chosen: list[float]) -> None:
    assert not {"reward.no_margin", "reward.no_answer_tokens"} & keys(tmp_path, dpo(chosen, -80.0))


def grpo(loss: Callable[[float, int], float], name: str = "kl") -> str:
    divergences = [0.0004 * i**1.5 for i in range(1, 40)]
    return "".join(
        f"{{'loss': {loss(kl, i):.6f}, 'grad_norm': 0.3, 'reward': {0.4 + i / 100}, 'reward_std': 0.4,"
        f" '{name}': {kl:.6f}, 'epoch': {i / 100}}}\n"
        for i, kl in enumerate(divergences)
    )


def test_a_policy_loss_that_is_the_penalty(tmp_path: Path) -> None:
    assert "loss.is_kl_term" in keys(tmp_path, grpo(lambda kl, i: 0.04 * kl))
    assert "loss.is_kl_term" in keys(tmp_path, grpo(lambda kl, i: 0.5 * kl, "actor/kl_loss"))
    assert "loss.is_kl_term" not in keys(tmp_path, grpo(lambda kl, i: 0.04 * kl + 0.02 * (i % 3)))
    assert "loss.is_kl_term" not in keys(tmp_path, grpo(lambda kl, i: 1.2 - i / 100))


def test_beta_zero_in_settings_of_a_preference_loss(tmp_path: Path) -> None:
    config = "stage: {}\ndo_train: true\nmodel_name_or_path: m\ndataset: d\ntemplate: qwen\nfinetuning_type: lora\npref_beta: {}\n"
    rule = "lint.preference_beta_zero"
    assert look(lint_settings, tmp_path, a_yaml=config.format("dpo", 0)).values(rule)
    for near in (config.format("dpo", 0.1), config.format("sft", 0)):
        assert not look(lint_settings, tmp_path, a_yaml=near).values(rule)


def test_weights_of_a_save_where_nothing_is_resumed(tmp_path: Path) -> None:
    rule = "lint.weights_from_save"
    command = "python run.py --model_name_or_path {} --output_dir o --per_device_train_batch_size 2 {}\n"
    assert look(lint_settings, tmp_path, run_sh=command.format("out/sft/checkpoint-1000", "")).values(rule)
    for near in (
        command.format("out/sft/checkpoint-1000", "--resume_from_checkpoint out/sft/checkpoint-1000"),
        command.format("meta-llama/Llama-3.1-8B", ""),
        command.format("models/checkpoints-of-2024/base", ""),
    ):
        assert not look(lint_settings, tmp_path, run_sh=near).values(rule)


def _log(rate: float) -> str:
    return "".join(
        f"Step {i} | loss:{2 - i / 99:.4f} lr:2e-05 tokens_per_second_per_gpu:{rate + i % 3:.3f} \n"
        for i in range(1, 30)
    )


def folder(above: Path, name: str) -> Path:
    (above / name).mkdir()
    return above / name


def test_a_step_that_takes_longer_with_more_processes(tmp_path: Path) -> None:
    seen = look(compare_paces, folder(tmp_path, "a"), one_gpu_log=_log(2400), two_gpus_log=_log(900))
    assert set(seen.values("pace.slower_with_more")) == {"world_size: 1 -> 2"}
    seen = look(compare_paces, folder(tmp_path, "b"), nodes1_log=_log(2400), nodes4_log=_log(900))
    assert set(seen.values("pace.slower_with_more")) == {"nodes: 1 -> 4"}
    for number, near in enumerate(
        (
            {"one_gpu_log": _log(900), "two_gpus_log": _log(2400)},  # the smaller run is the slower one
            {"gpu0_log": _log(2400), "gpu1_log": _log(900)},  # numbers of single cards
            {"one_gpu_log": _log(2400), "two_nodes_log": _log(900)},  # different things are counted
        )
    ):
        assert not look(compare_paces, folder(tmp_path, f"near{number}"), **near).values("pace.slower_with_more")


def test_a_loss_that_drops_to_exactly_zero_is_told_from_one_that_began_there(tmp_path: Path) -> None:
    def lines(losses: list[float]) -> str:
        return "".join(
            f"{{'loss': {x}, 'learning_rate': 1e-06, 'epoch': {i / 99:.2f}}}\n" for i, x in enumerate(losses)
        )

    assert "loss.zero_after_finite" in keys(tmp_path, lines([1.91, 1.8, 1.7, 0.0, 0.0, 0.0, 0.0]))
    assert "loss.zero_after_finite" not in keys(tmp_path, lines([0.0] * 6))
    assert "loss.zero_after_finite" not in keys(tmp_path, lines([1.9, 1.8, 0.0, 0.0, 0.0, 1.7, 1.6]))
