"""Which of two variants is slower, and what it has that the other has not."""

from __future__ import annotations

from pathlib import Path

from captured import look
from traindoctor.agent.tools.curves.paces_tools import batch_cost, compare_paces, generation_share


def _log(seconds: float) -> str:
    return "".join(f"step {i} loss {4 - i / 50:.3f} step_time {seconds + i % 3 / 100:.3f} s\n" for i in range(1, 30))


def test_the_slower_variant_and_the_setting_it_differs_in(tmp_path: Path) -> None:
    seen = look(
        compare_paces, tmp_path, run_a_log=_log(1.0), run_b_log=_log(2.6),
        launch_a_sh="torchrun train.py --learning_rate 1e-4 --per_device_train_batch_size 8 --bf16 true\n",
        launch_b_sh="torchrun train.py --learning_rate 1e-4 --per_device_train_batch_size 1 --bf16 true\n",
    )  # fmt: skip
    assert 2.4 < seen.one("pace.slower_ratio") < 2.7 and seen.result.summary.startswith("b takes")
    assert set(seen.values("pace.slower_with")) == {"micro_batch_size: 8 -> 1"}


def test_a_config_belongs_to_the_variant_whose_script_names_it(tmp_path: Path) -> None:
    config = (
        '{{"zero_optimization": {{\n"stage": {},\n"overlap_comm": true}},\n"gradient_clipping": 1.0,\n'
        '"bf16": {{"enabled": true}},\n"train_micro_batch_size_per_gpu": 4,\n"gradient_accumulation_steps": 2}}\n'
    )
    seen = look(
        compare_paces, tmp_path, run_a_log=_log(3.0), run_b_log=_log(1.0),
        launch_a_sh="deepspeed train.py --deepspeed ds_z3.json --learning_rate 1e-4\n",
        launch_b_sh="deepspeed train.py --deepspeed ds_z2.json --learning_rate 1e-4\n",
        ds_z3_json=config.format(3), ds_z2_json=config.format(2),
    )  # fmt: skip
    assert "zero_stage: 2 -> 3" in seen.values("pace.slower_with")


def test_equal_paces_and_a_single_run_are_no_finding(tmp_path: Path) -> None:
    assert look(compare_paces, tmp_path, run_a_log=_log(1.0), run_b_log=_log(1.1)).result.outcome == "clean"
    (tmp_path / "one").mkdir()
    assert look(compare_paces, tmp_path / "one", train_log=_log(1.0)).result.outcome == "not_applicable"


def test_broken_numbers_are_passed_over(tmp_path: Path) -> None:
    broken = "".join(f"step {i} loss nan step_time nan s\n" for i in range(9))
    assert look(compare_paces, tmp_path, run_a_log=broken, run_b_log=_log(1.0)).result.outcome == "not_applicable"


def _verl(generation: float) -> str:
    return "".join(
        f"step:{i} - actor/pg_loss:0.01 - critic/rewards/mean:0.4 - timing_s/gen:{generation + i / 10:.2f} - "
        f"timing_s/update_actor:4.10 - timing_s/step:{generation + 8 + i / 10:.2f}\n"
        for i in range(1, 12)
    )


def test_the_share_of_generation(tmp_path: Path) -> None:
    seen = look(generation_share, tmp_path, train_log=_verl(24.0))
    assert seen.result.outcome == "finding" and 0.74 < seen.one("step_share.generation") < 0.77
    assert look(generation_share, tmp_path, train_log=_verl(2.0)).result.outcome == "clean"
    assert look(generation_share, tmp_path, train_log=_log(1.0)).result.outcome == "not_applicable"


def test_two_runs_named_by_a_bare_word(tmp_path: Path) -> None:
    seen = look(
        compare_paces, tmp_path, before_log=_log(1.0), after_log=_log(1.9),
        env_before_txt="torch==1.11.0\ntriton==2.0.0\n", env_after_txt="torch==2.3.1\ntriton==2.0.0\n",
    )  # fmt: skip
    assert seen.result.summary.startswith("after takes")
    assert set(seen.values("pace.slower_with")) == {"torch: 1.11.0 -> 2.3.1"}
    (tmp_path / "apart").mkdir()
    other = look(compare_paces, tmp_path / "apart", train_log=_log(1.0), eval_log=_log(3.0))
    assert other.result.outcome == "not_applicable"


def _rates(tokens: float) -> str:
    return "".join(f"step {i} | loss {4 - i / 50:.3f} | {tokens + i % 7:.0f} tokens/s\n" for i in range(1, 20))


def test_an_earlier_run_in_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "earlier").mkdir()
    config = '{{\n"attn_implementation": "{}",\n"batch_size": 4,\n"lr": 0.001,\n"steps": 100,\n"seed": 1\n}}\n'
    (tmp_path / "earlier" / "train.log").write_text(_rates(4000))
    (tmp_path / "earlier" / "run.json").write_text(config.format("sdpa"))
    seen = look(compare_paces, tmp_path, train_log=_rates(600), run_json=config.format("eager"))
    assert seen.result.summary.startswith("this run takes") and seen.one("pace.slower_ratio") > 6
    assert set(seen.values("pace.slower_with")) == {"attention_implementation: sdpa -> eager"}


def test_another_folder_is_no_reference(tmp_path: Path) -> None:
    (tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "train.log").write_text(_rates(4000))
    assert look(compare_paces, tmp_path, train_log=_rates(600)).result.outcome == "not_applicable"


def _steps(batch: int, steps: float) -> str:
    return "".join(f"step {i} loss 0.3 {steps:.1f} steps/s {batch * steps:.0f} rows/s\n" for i in range(1, 12))


def test_a_step_that_costs_the_same_whatever_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "large.log").write_text(_steps(2048, 100))
    seen = look(batch_cost, tmp_path, train_log=_steps(4, 600))
    assert 80 < seen.one("pace.fixed_cost") < 90


def test_batches_that_cost_by_their_size(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "large.log").write_text(_steps(64, 10))
    assert look(batch_cost, tmp_path, train_log=_steps(8, 70)).result.outcome == "clean"


def test_a_trial_with_small_batches_beside_a_sound_run(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "small.log").write_text(_steps(4, 600))
    assert look(batch_cost, tmp_path, train_log=_steps(2048, 100)).result.outcome == "clean"
