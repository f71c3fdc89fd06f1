"""lint_settings: each rule fires on what it names, cites its lines, and leaves sound settings alone."""

from __future__ import annotations

import pytest
import yaml
from traindoctor.agent.core.playbook import KNOWLEDGE
from traindoctor.agent.reading.code.circumstances import NEEDS
from traindoctor.agent.reading.settings.lints import _OPS
from traindoctor.agent.reading.settings.settings_map import settings_map
from traindoctor.agent.tools.settings.settings_tools import lint_settings

from tests.tools.captured import look

HF = "per_device_train_batch_size: 4\nlearning_rate: 1.0e-5\nwarmup_steps: 100\ngradient_checkpointing: true\n"
SLIME = "python train.py --hf-checkpoint m --rollout-batch-size 32 --n-samples-per-prompt 8 --global-batch-size {} "
SLIME += "--recompute-granularity full --lr-warmup-iters 5 {}\n"

CASES = [
    ("processes_exceed_visible_gpus", {"run_sh": "CUDA_VISIBLE_DEVICES=1,2 torchrun --nproc_per_node=4 a.py\n"}, {1}),
    ("rollout_batch_constraint", {"run_sh": SLIME.format(100, "")}, {1}),
    ("rollout_batch_constraint", {"run_sh": SLIME.format(128, "--num-steps-per-rollout 1")}, {1}),
    ("colocate_async", {"run_sh": "python train_async.py --colocate --actor-num-nodes 1\n"}, {1}),
    ("parallel_sizes", {"run_sh": "torchrun --nproc_per_node 8 pretrain_gpt.py \\\n --tensor-model-parallel-size 3\n"}, {1, 2}),
    ("heads_not_divisible_by_tp", {"run_sh": "python pretrain_gpt.py --num-attention-heads 30 --tensor-model-parallel-size 4\n"}, {1}),
    ("layers_not_divisible_by_pp", {"run_sh": "python pretrain_gpt.py --num-layers 30 --pipeline-model-parallel-size 4\n"}, {1}),
    ("layers_not_divisible_by_pp",
     {"run_sh": "python pretrain_gpt.py --num-layers 80 --pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 2\n"}, {1}),
    ("layers_not_divisible_by_pp",
     {"run_sh": "python pretrain_gpt.py --num-layers 40 --pipeline-model-parallel-size 8 --num-virtual-stages-per-pipeline-rank 2\n"}, {1}),
    ("batch_arithmetic", {"run_sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 3 --global-batch-size 64\n"}, {1}),
    (
        "same_device_for_all_ranks",
        {"run_sh": "torchrun --nproc_per_node=2 t.py\n", "t_py": 'p.add_argument("--device", default="cuda:0")\n'},
        {1},
    ),
    ("stops_on_worst", {"config_yaml": "early_stopping:\n  monitor: val_loss\n  mode: max\n  patience: 4\n"}, {2, 3}),
    ("keeps_worst", {"config_yaml": HF + "metric_for_best_model: eval_loss\ngreater_is_better: true\n"}, {5, 6}),
    ("keeps_worst", {"config_yaml": HF + "metric_for_best_model: accuracy\ngreater_is_better: false\n"}, {5, 6}),
    ("no_gradient_clipping", {"config_yaml": HF + "max_grad_norm: 0\n"}, {5}),
    (
        "clip_not_passed_to_deepspeed",
        {"config_yaml": HF + "max_grad_norm: 1.0\n", "ds_json": '{"zero_optimization": {"stage": 2},\n "gradient_accumulation_steps": 4}'},
        {5, 2},
    ),
    ("no_warmup", {"config_yaml": HF.replace("100", "0")}, {3}),
    ("lr_high_for_model", {"config_yaml": HF.replace("1.0e-5", "1.0e-3") + "model_name_or_path: m\n"}, {2, 5}),
    ("fp16_enabled", {"config_yaml": HF + "fp16: true\n"}, {5}),
    ("fp16_with_bf16_model", {"run_sh": "python run_clm.py --fp16 \\\n --model_name_or_path google/t5-base\n"}, {1, 2}),
    (
        "optimizer_scheduler_in_two_places",
        {"config_yaml": HF + "optim: adafactor\n", "ds_json": '{"zero_optimization": {},\n"optimizer": {"type": "AdamW"}}'},
        {5, 2},
    ),
    ("ignored_setting", {"config_yaml": HF + "dataloader_num_workers: 0\ndataloader_prefetch_factor: 2\n"}, {5, 6}),
    ("folklore_setting", {"run_sh": "export NCCL_TIMEOUT=7200000\npython a.py\n"}, {1}),
    ("folklore_setting", {"ds_json": '{"zero_optimization": {},\n"elasticity": {"min_time_scale_in_ms": 1}}'}, {2}),
    ("no_activation_checkpointing", {"config_yaml": HF.replace("true", "false")}, {4}),
    ("eager_attention", {"config_yaml": HF + "attn_implementation: eager\n"}, {5}),
    ("no_length_cap", {"run_sh": "python -m llama_recipes.finetuning --batching_strategy padding\n"}, {1}),
    ("gradient_checkpointing_with_peft_no_input_grads", {"config_yaml": HF + "use_peft: true\n"}, {4, 5}),
    ("zero3_no_offload", {"ds_json": '{"zero_optimization": {"stage": 3}}'}, {1}),
    ("offload_to_cpu", {"ds_json": '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'}, {1}),
    ("offload_to_cpu", {"run_sh": "swift sft --model qwen --sft_type lora --deepspeed zero3-offload\n"}, {1}),
    ("offload_to_cpu", {"config_yaml": HF + "deepspeed: examples/deepspeed/ds_z3_offload_config.json\n"}, {5}),
    ("eval_logits_kept", {"t_py": "from transformers import Trainer\nTrainer(model=m,\n  compute_metrics=f)\n"}, {3}),
    ("dataloader_workers_zero", {"config_yaml": HF + "dataloader_num_workers: 0\n"}, {5}),
    ("dataloader_workers_over_cpus", {"run_sh": "#SBATCH --cpus-per-task=4\npython a.py --num_workers 16\n"}, {1, 2}),
    (
        "max_length_shorter_than_data",
        {"config_yaml": HF + "max_seq_length: 2048\n", "stats_txt": "rows: 5\ncharacters per row (mean): 17000\n"},
        {5, 2},
    ),
    ("master_port_default", {"run_sh": "torchrun --nproc_per_node=2 a.py\ntorchrun --nproc_per_node=2 b.py\n"}, {1, 2}),
    (
        "node_number_missing",
        {"run_sh": "".join(f"FORCE_TORCHRUN=1 NNODES=2 RANK={n} MASTER_ADDR=10.0.0.1 llamafactory-cli train a.yaml\n" for n in (0, 1))},
        {1, 2},
    ),
    ("node_number_missing", {"run_sh": "export RANK=1\ntorchrun --nnodes 4 --nproc_per_node 8 --master_addr n0 train.py\n"}, {1}),
    ("node_number_missing", {"run_sh": "NNODES=2 RANK=0 NPROC_PER_NODE=8 swift sft --model m\n"}, {1}),
    ("debug_flags_on", {"run_sh": "CUDA_LAUNCH_BLOCKING=1 python a.py\n"}, {1}),
    ("tokenizer_template_mismatch", {"config_yaml": HF + "template: llama3\nmodel_name_or_path: Qwen/Qwen2-7B\ncutoff_len: 99\n"}, {5, 6}),
    ("save_without_optimizer", {"config_yaml": HF + "save_only_model: true\n"}, {5}),
    ("pad_is_eos", {"t_py": "tokenizer.pad_token = tokenizer.eos_token\n"}, {1}),
    ("ddp_find_unused_off", {"config_yaml": HF + "ddp_find_unused_parameters: false\n"}, {5}),
    ("group_size_one", {"run_sh": "python train.py --hf-checkpoint m --rollout-batch-size 32 --n-samples-per-prompt 1\n"}, {1}),
    ("kl_zero", {"t_py": "from trl import GRPOConfig\nGRPOConfig(beta=0.0)\n"}, {2}),
    ("engine_fraction_high", {"t_py": 'from trl import GRPOConfig\nGRPOConfig(vllm_gpu_memory_utilization=0.9,\n vllm_mode="colocate")\n'}, {2, 3}),
    ("wrong_type", {"config_yaml": HF.replace("1.0e-5", "fast")}, {2}),
    ("wrong_type", {"config_yaml": HF.replace("1.0e-5", '"1e-5"')}, {2}),
    ("unknown_setting", {"config_yaml": HF + "max_grad_nrm: 1.0\n"}, {5}),
    ("duplicate_key", {"config_yaml": HF + "learning_rate: 1\n"}, {2, 5}),
    ("temperature_mismatch", {"config_yaml": "policy:\n  temperature: 1.0\ngrpo:\n  temperature: 0.7\n"}, {2, 4}),
    ("fp16_and_bf16", {"config_yaml": HF + "fp16: true\nbf16: true\n"}, {5, 6}),
    ("fp16_and_bf16", {"config_yaml": HF + "bf16: true\n", "ds_json": '{"zero_optimization": {},\n"fp16": {"enabled": true}}'}, {5, 2}),
    ("static_loss_scale", {"ds_json": '{"zero_optimization": {},\n"fp16": {"enabled": true,\n"loss_scale": 128}}'}, {2, 3}),
    ("packing_without_flash_attention", {"t_py": 'from trl import SFTConfig\nSFTConfig(packing=True)\nAutoModelForCausalLM.from_pretrained(m, attn_implementation="sdpa")\n'}, {2, 3}),
    ("checkpointing_with_cache", {"config_yaml": HF + "use_cache: true\n"}, {4, 5}),
    ("device_map_with_processes", {"run_sh": "torchrun --nproc_per_node=4 t.py --device_map auto\n"}, {1}),
    ("colocate_without_sleep", {"run_sh": "python -m openrlhf.cli.train_ppo_ray --micro_train_batch_size 1 --colocate_all_models\n"}, {1}),
    ("async_save_format", {"run_sh": "python pretrain_gpt.py --async-save --ckpt-format torch\n"}, {1}),
    ("device_connections", {"run_sh": "export CUDA_DEVICE_MAX_CONNECTIONS=8\npython pretrain_gpt.py --tensor-model-parallel-size 2\n"}, {1, 2}),
    (
        "zero3_no_weights_on_save",
        {"ds_json": '{"zero_optimization": {"stage": 3,\n"stage3_gather_16bit_weights_on_model_save": false}}'},
        {1, 2},
    ),
    ("ignored_setting", {"config_yaml": HF + "lr_scheduler_type: constant\n"}, {5, 3}),
    ("ignored_setting", {"config_yaml": HF + "max_steps: 500\nnum_train_epochs: 3\n"}, {5, 6}),
    ("ignored_setting", {"ds_json": '{"zero_optimization": {"stage": 2,\n"offload_param": {"device": "cpu"}}}'}, {1, 2}),
    ("optimizer_scheduler_in_two_places", {"config_yaml": HF + "max_grad_norm: 1.0\n", "ds_json": '{"zero_optimization": {},\n"gradient_clipping": 0.3}'}, {5, 2}),
    ("warmup_exceeds_steps", {"config_yaml": HF + "max_steps: 80\n"}, {3, 5}),
    ("warmup_exceeds_steps", {"run_sh": "python pretrain_gpt.py --lr-warmup-iters 2000 --lr-decay-iters 1000\n"}, {1}),
    ("schedule_ends_early", {"run_sh": "python pretrain_gpt.py --train-iters 5000 --lr-decay-iters 1000\n"}, {1}),
    ("best_model_conflict", {"config_yaml": HF + "load_best_model_at_end: true\neval_strategy: 'no'\n"}, {5, 6}),
    (
        "best_model_conflict",
        {"config_yaml": HF + "load_best_model_at_end: true\neval_strategy: steps\nsave_strategy: steps\nsave_steps: 500\neval_steps: 200\n"},
        {5, 8, 9},
    ),
    ("best_model_conflict", {"config_yaml": HF + "load_best_model_at_end: true\neval_strategy: epoch\nsave_strategy: steps\n"}, {5, 6, 7}),
    ("rollout_batch_constraint", {"t_py": "from trl import GRPOConfig\nGRPOConfig(num_generations=8,\n generation_batch_size=12)\n"}, {2, 3}),
    ("rollout_batch_constraint", {"run_sh": "python -m verl.trainer.main_ppo data.train_batch_size=64 actor_rollout_ref.actor.ppo_mini_batch_size=256\n"}, {1}),
    (
        "rollout_batch_constraint",
        {"config_yaml": "grpo:\n  num_prompts_per_step: 30\n  num_generations_per_prompt: 16\npolicy:\n  train_global_batch_size: 512\n"},
        {2, 3, 5},
    ),
    ("parallel_sizes", {"run_sh": SLIME.format(256, "--rollout-num-gpus 6 --rollout-num-gpus-per-engine 4")}, {1}),
    ("sequence_not_divisible_by_cp", {"run_sh": "python pretrain_gpt.py --seq-length 4100 --context-parallel-size 8\n"}, {1}),
    ("rollout_sampling_cut", {"run_sh": SLIME.format(256, "--rollout-top-p 0.9")}, {1}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "files", "lines"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_rules_fire_with_their_lines(tmp_path, rule, files, lines):
    seen = look(lint_settings, tmp_path, **files)
    found = seen.of(f"lint.{rule}")
    assert found, sorted({e.key for e in seen.evidence})
    assert lines <= {e.line for e in found}


SOUND = [
    {"run_sh": SLIME.format(256, "")},
    {"run_sh": SLIME.format(128, "--num-steps-per-rollout 2")},
    {"run_sh": "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=4 a.py\n"},
    {"run_sh": "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 2 --global-batch-size 64 "
     "--tensor-model-parallel-size 2 --num-attention-heads 32 --num-layers 24 --pipeline-model-parallel-size 2 --lr-warmup-iters 10 "
     "--recompute-granularity full --distributed-timeout-minutes 30\n"},
    {"config_yaml": HF + "bf16: true\nmax_grad_norm: 1.0\ndataloader_num_workers: 4\nddp_timeout: 3600\n"},
    {"ds_json": '{"zero_optimization": {"stage": 2}, "gradient_clipping": 1.0, "bf16": {"enabled": true}}',
     "config_yaml": HF + "bf16: true\nmax_grad_norm: 1.0\n"},
    {"config_yaml": HF + "bf16: true\nfp16: false\nload_best_model_at_end: true\neval_strategy: steps\nsave_strategy: steps\n"
     "save_steps: 400\neval_steps: 200\nmax_steps: 5000\nlr_scheduler_type: constant_with_warmup\nddp_timeout: 3600\nuse_cache: false\n"},
    {"t_py": 'from trl import SFTConfig\nSFTConfig(packing=True, attn_implementation="flash_attention_2", bf16=True, max_length=2048)\n'},
    {"t_py": "from trl import GRPOConfig\nGRPOConfig(num_generations=8, generation_batch_size=64, top_p=1.0, temperature=1.0)\n"},
    {"run_sh": "python -m verl.trainer.main_ppo data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size=64 "
     "actor_rollout_ref.rollout.val_kwargs.top_p=0.7 actor_rollout_ref.rollout.n=8\n"},
    {"run_sh": "python pretrain_gpt.py --num-layers 30 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 6 "
     "--train-iters 5000 --lr-decay-iters 5000 --lr-warmup-iters 100 --recompute-granularity full --async-save --ckpt-format torch_dist "
     "--seq-length 4096 --context-parallel-size 2\n"},
    {"run_sh": "python pretrain_gpt.py --num-layers 96 --pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 3 "
     "--lr-warmup-iters 100 --recompute-granularity full\n"},
    {"run_sh": SLIME.format(256, "--actor-num-gpus-per-node 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"),
     "engine_log": "server_args=ServerArgs(model_path='/m', tp_size=4, mem_fraction_static=0.7)\n"},
    {"ds_json": '{"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}, "fp16": {"enabled": "auto", "loss_scale": 0}, '
     '"bf16": {"enabled": "auto"}, "gradient_clipping": "auto"}', "config_yaml": HF + "bf16: true\nmax_grad_norm: 1.0\n"},
    {"config_toml": '[training]\nlocal_batch_size = 8\nseq_len = 4096\nmax_norm = 1.0\n[activation_checkpoint]\nmode = "selective"\n'},
]  # fmt: skip


VERL = "torchrun --nproc_per_node 8 -m verl.trainer.main_ppo data.train_batch_size=256 actor_rollout_ref.actor.ppo_mini_batch_size={} "
VERL += "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16 actor_rollout_ref.rollout.n={}\n"
TITAN = (
    "[training]\nlocal_batch_size = 8\n[parallelism]\ntensor_parallel_degree = 2\ndata_parallel_shard_degree = 2\n{}"
)
TRAINED = HF.replace("1.0e-5", "3.0e-4") + "model_name_or_path: {}\n"

STOPS = "early_stopping:\n  monitor: {}\n  mode: {}\n  patience: 4\n"
PAIRS = [  # rule, settings that it names, settings like them that it must leave alone
    ("stops_on_worst", {"config_yaml": STOPS.format("val/perplexity", "max")}, {"config_yaml": STOPS.format("val/perplexity", "min")}),
    ("stops_on_worst", {"config_yaml": STOPS.format("val_loss", "max")}, {"config_yaml": STOPS.format("val_accuracy", "max")}),
    (
        "stops_on_worst",  # two monitors: which of them the mode belongs to is left to the reader
        {"config_yaml": STOPS.format("val_loss", "max")},
        {"config_yaml": STOPS.format("val_f1", "max") + "model_checkpoint:\n  monitor: val_loss\n  mode: min\n"},
    ),
    ("keeps_worst", {"config_yaml": HF + "metric_for_best_model: eval_loss\ngreater_is_better: true\n"}, {"config_yaml": HF + "metric_for_best_model: eval_loss\n"}),
    ("keeps_worst", {"config_yaml": HF + "metric_for_best_model: f1\ngreater_is_better: false\n"}, {"config_yaml": HF + "metric_for_best_model: neg_log_loss\ngreater_is_better: true\n"}),
    *[  # numbered by hand, numbered by the store, and a program that starts no processes of its own
        (
            "node_number_missing",
            {"run_sh": "export RANK=1\ntorchrun --nnodes 2 --nproc_per_node 8 --master_addr n0 train.py\n"},
            {"run_sh": sound},
        )
        for sound in (
            "export RANK=1\ntorchrun --nnodes 2 --node_rank 1 --nproc_per_node 8 --master_addr n0 train.py\n",
            "export RANK=1\ntorchrun --nnodes 2 --nproc_per_node 8 --rdzv_backend c10d --rdzv_endpoint n0:29500 train.py\n",
            "NNODES=2 RANK=1 WORLD_SIZE=2 MASTER_ADDR=n0 python train.py\n",
        )
    ],
    ("kl_zero", {"run_sh": SLIME.format(256, "--kl-loss-coef 0.0 --kl-coef 0.0")}, {"run_sh": SLIME.format(256, "--kl-loss-coef 0.0 --kl-coef 0.01")}),
    ("batch_arithmetic", {"run_sh": VERL.format(64, 1)}, {"run_sh": VERL.format(64, 8)}),
    (
        "parallel_sizes",
        {"run_sh": "torchrun --nproc_per_node 8 -m torchtitan.train\n", "config_toml": TITAN.format("")},
        {"run_sh": "torchrun --nproc_per_node 8 -m torchtitan.train\n", "config_toml": TITAN.format("data_parallel_replicate_degree = 2\n")},
    ),
    (
        "parallel_sizes",
        {"run_sh": "torchrun --nproc_per_node 8 -m torchtitan.train\n", "config_toml": TITAN.format("data_parallel_replicate_degree = 4\n")},
        {"run_sh": "torchrun --nproc_per_node 8 -m torchtitan.train\n", "config_toml": TITAN.format("data_parallel_replicate_degree = -1\n")},
    ),
    *[
        ("lr_high_for_model", {"config_yaml": TRAINED.format(large)}, {"config_yaml": TRAINED.format(small)})
        for large, small in (
            ("facebook/opt-1.3b", "facebook/opt-125m"), ("EleutherAI/pythia-6.9b", "EleutherAI/pythia-70m"),
            ("openai-community/gpt2-xl", "openai-community/gpt2"), ("Qwen/Qwen2.5-7B", "HuggingFaceTB/SmolLM-135M"),
        )
    ],
    *[
        ("gradient_checkpointing_with_peft_no_input_grads", {"config_yaml": HF + "use_peft: true\n"}, own)
        for own in (
            {"config_yaml": "base_model: m\ndatasets: [a]\nsequence_len: 512\nmicro_batch_size: 1\nadapter: lora\nlora_r: 8\ngradient_checkpointing: true\n"},
            {"run_sh": "swift sft --model m --lora_rank 8 --gradient_checkpointing true\n"},
            {"run_sh": "trl sft --model_name_or_path m --use_peft --gradient_checkpointing\n"},
            {"config_yaml": "stage: sft\nfinetuning_type: lora\ncutoff_len: 99\nlora_rank: 8\ngradient_checkpointing: true\n"},
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("rule", "bad", "sound"), PAIRS)
def test_a_rule_knows_the_sound_neighbour(tmp_path, rule, bad, sound):
    for name, files, fires in (("bad", bad, True), ("sound", sound, False)):
        (tmp_path / name).mkdir()
        assert bool(look(lint_settings, tmp_path / name, **files).of(f"lint.{rule}")) is fires, name


@pytest.mark.parametrize("files", SOUND)
def test_sound_settings_are_left_alone(tmp_path, files):
    seen = look(lint_settings, tmp_path, **files)
    assert {e.key for e in seen.evidence} <= {"lint.ddp_timeout_default"}


def test_an_absence_is_told_as_one(tmp_path):
    seen = look(lint_settings, tmp_path, config_yaml="per_device_train_batch_size: 4\n")
    (found,) = seen.of("lint.no_activation_checkpointing")
    assert (found.kind, found.searched) == ("absent", ["config.yaml"])


def test_a_name_that_the_map_knows_is_no_typo(tmp_path):
    config = '{"architectures": ["A"], "model_type": "m", "use_cache": true, "bos_token_id": 1, "eos_token_id": 2}'
    assert not look(lint_settings, tmp_path, config_json=config).of("lint.unknown_setting")


def test_the_rules_are_sound():
    for rule, cases in yaml.safe_load((KNOWLEDGE / "lint.yaml").read_text()).items():
        for case in cases:
            assert set(case) <= {"of", "not_of", "when", "unless", "says", "cite", "needs"}, rule
            assert set(case.get("needs", ())) <= set(NEEDS), rule
            assert set(case.get("of", ())) | set(case.get("not_of", ())) <= set(settings_map().frameworks), rule
            for condition in (*case["when"], *case.get("unless", ())):
                assert set(condition) <= {"setting", "op", "value", "side"}, rule
                assert condition["op"] in {*_OPS, "missing"}, rule
                name = condition["setting"]
                assert name in settings_map().canonical or name.startswith("other."), (rule, name)


def made(folder):
    folder.mkdir()
    return folder


def test_a_lint_that_needs_a_gpu_is_none_of_a_run_on_the_cpu(tmp_path):
    config = HF + "gradient_checkpointing: false\n"
    assert look(lint_settings, made(tmp_path / "a"), config_yaml=config).of("lint.no_activation_checkpointing")
    on_cpu = {"config_yaml": config + "use_cpu: true\n", "train_log": "training on the cpu\nstep 1 loss 2.0\n"}
    assert not look(lint_settings, made(tmp_path / "b"), **on_cpu).of("lint.no_activation_checkpointing")


TWO = "import argparse, torch\np = argparse.ArgumentParser()\n{}a = p.parse_args()\nprint('{} begins', {})\n"
OPTIONS = "".join(
    f"p.add_argument('--{n}')\n" for n in ("model", "learning_rate", "per_device_train_batch_size", "fp16", "bf16")
)
READS = "a.model, a.learning_rate, a.fp16, a.bf16"
TRAINER = "from transformers import Trainer, TrainingArguments\n" + TWO.format(OPTIONS, "the training", READS)
APART = {
    "two programs of one script": {
        "go_sh": "python train.py --learning_rate 4e-3 --per_device_train_batch_size 2 > train.log\npython judge.py --model meta/Llama-7B > judge.log\n",
        "train_py": TRAINER, "judge_py": TWO.format(OPTIONS, "the judge", READS),
        "train_log": "the training begins None 4e-3\n", "judge_log": "the judge begins meta/Llama-7B None\n",
    },
    "two commands of one program": {
        "a_sh": "python train.py --learning_rate 4e-3 --per_device_train_batch_size 2 --bf16 true > a.log\n",
        "b_sh": "python train.py --model meta/Llama-7B --fp16 true > b.log\n",
        "train_py": TRAINER, "a_log": "the training begins None 4e-3\n", "b_log": "the training begins m None\n",
    },
    "two variants": {
        "run_a/config_yaml": HF.replace("1.0e-5", "4.0e-3") + "bf16: true\n",
        "run_b/config_yaml": "per_device_train_batch_size: 1\nmodel_name_or_path: meta/Llama-7B\nfp16: true\n",
    },
}  # fmt: skip


@pytest.mark.parametrize("how", APART)
def test_what_two_runs_were_given_is_not_taken_together(tmp_path, how):
    files = {name.replace("/", "__"): text for name, text in APART[how].items()}
    found = {e.key for e in look(lint_settings, tmp_path, **files).evidence}
    assert not found & {"lint.lr_high_for_model", "lint.fp16_and_bf16"}


def test_what_one_run_was_given_is_taken_together(tmp_path):
    line = "python train.py --model meta/Llama-7B --learning_rate 4e-3 --per_device_train_batch_size 2 --bf16 true --fp16 true > a.log\n"
    seen = look(lint_settings, tmp_path, a_sh=line, train_py=TRAINER, a_log="the training begins m 4e-3\n")
    assert seen.of("lint.lr_high_for_model")
    assert seen.of("lint.fp16_and_bf16")


def test_an_option_that_the_program_declares_is_no_typo(tmp_path):
    known = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--eval_file')\nprint('begins', p.parse_args().eval_file)\n"
    line = "python train.py --per_device_train_batch_size 2 --eval_file x --num_train_epochs 1 > a.log\n"
    log = {"a_log": "begins x\n"}
    assert not look(lint_settings, made(tmp_path / "a"), a_sh=line, train_py=known, **log).of("lint.unknown_setting")
    other = known.replace("eval_file", "files")
    assert look(lint_settings, made(tmp_path / "b"), a_sh=line, train_py=other, **log).of("lint.unknown_setting")
