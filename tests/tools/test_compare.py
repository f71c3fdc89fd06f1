"""compare_settings: what differs between variants, against the good run, and between asked and used."""

from __future__ import annotations

from traindoctor.agent.tools.settings.settings_tools import compare_settings

from tests.tools.captured import look
from tests.tools.folders import evidence, workspace

BASE = "base_model: m\nlearning_rate: 0.00002\nmicro_batch_size: 2\nsequence_len: 8192\nmax_grad_norm: {}\nbf16: true\n"
ENGINE = "[2024-03-26 09:14:52,020] [INFO] [config.py:1000:print]   gradient_clipping ............ 0.0\nstep 1\n"


def test_variants_by_name_differ_in_one_setting(tmp_path):
    (tmp_path / "config_a.yaml").write_text(BASE.format(1.0))
    (tmp_path / "config_b.yaml").write_text(BASE.format(0.5))
    seen = look(compare_settings, tmp_path, run_a_log="step 1 loss 2.0\n", run_b_log="step 1 loss 2.0\n")
    assert seen.one("compare.only_difference") == "gradient_clip_norm"
    found = seen.of("compare.setting_differs")
    assert {(e.file, e.line) for e in found} == {("config_a.yaml", 5), ("config_b.yaml", 5)}
    assert found[0].value == {"name": "gradient_clip_norm", "a": 1.0, "b": 0.5, "where": "a / b"}


def test_two_configs_that_are_nearly_the_same(tmp_path):
    (tmp_path / "works.yaml").write_text(BASE.format(1.0))
    (tmp_path / "breaks.yaml").write_text(BASE.format(1.0) + "fp16: true\n")
    assert look(compare_settings, tmp_path).evidence == []  # of which nobody knows that they ran
    seen = look(compare_settings, tmp_path, works_log="step 1 loss 2.0\n", breaks_log="step 1 loss 2.0\n")
    assert {e.value["name"] for e in seen.of("compare.setting_differs")} == {"fp16"}


def test_unrelated_configs_are_not_compared(tmp_path):
    (tmp_path / "train.yaml").write_text(BASE.format(1.0))
    (tmp_path / "data.yaml").write_text("dataset: x\nnum_workers: 4\nseed: 3\n")
    assert look(compare_settings, tmp_path).result.outcome == "not_applicable"


def test_asked_against_used(tmp_path):
    (tmp_path / "train.log").write_text(ENGINE)
    seen = look(compare_settings, tmp_path, config_yaml=BASE.format(1.0))
    found = seen.of("compare.asked_used_differs")
    assert found[0].value == {"name": "gradient_clip_norm", "asked": 1.0, "used": 0.0}
    assert {(e.file, e.line) for e in found} == {("config.yaml", 5), ("train.log", 1)}


def test_what_is_used_as_asked_is_clean(tmp_path):
    (tmp_path / "train.log").write_text("  Gradient Accumulation steps = 4\n  Num Epochs = 3\n")
    seen = look(compare_settings, tmp_path, config_yaml="gradient_accumulation_steps: 4\nnum_train_epochs: 3.0\n")
    assert seen.evidence == []


def test_auto_is_not_compared(tmp_path):
    (tmp_path / "train.log").write_text("  Gradient Accumulation steps = 4\n")
    ds = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": "auto"}'
    assert look(compare_settings, tmp_path, ds_json=ds).evidence == []


def test_the_good_run_differs_in_a_flag_and_a_version(tmp_path):
    ws = workspace(
        tmp_path,
        good={"run_sh": "python train.py --lr 1e-4 --bf16\n", "pip-freeze_txt": "torch==2.5.1\n"},
        run_sh="python train.py --lr 1e-4 --fp16\n",
        **{"pip-freeze_txt": "torch==2.6.0\n"},
    )
    result = compare_settings(ws)
    assert {e.value["name"] for e in evidence(result, "compare.setting_differs")} == {"fp16", "bf16"}
    assert [e.value["name"] for e in evidence(result, "compare.version_differs")] == ["torch", "torch"]


def test_rows_of_a_sweep(tmp_path):
    seen = look(compare_settings, tmp_path, sweep_csv="gpus,grad_acc,initial_loss\n4,2,6.4\n4,32,138\n")
    assert seen.one("compare.only_difference") == "gradient_accumulation_steps"
    assert {e.line for e in seen.of("compare.setting_differs")} == {2, 3}


def test_a_label_names_the_setting(tmp_path):
    for n in (1, 2):
        (tmp_path / f"run_cp{n}.log").write_text("{'loss': 1.0}\n" * 3)
    seen = look(
        compare_settings, tmp_path, config_cp2_yaml="base_model: m\ncontext_parallel_size: 2\nmicro_batch_size: 1\n"
    )
    assert seen.one("compare.only_difference") == "context_parallel"
    assert [e.line for e in seen.of("compare.setting_differs")] == [2]


def test_versions_in_a_table_of_trials(tmp_path):
    table = "program,lock,stalled\nmin,nvidia-nccl-cu13==2.28.9,7\nmin,nvidia-nccl-cu13==2.30.7,0\n"
    seen = look(compare_settings, tmp_path, trials_csv=table)
    assert {e.line for e in seen.of("compare.version_differs")} == {2, 3}
