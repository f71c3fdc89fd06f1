"""What is not written where the framework would refuse it, or would not read it: told instead, with the reason."""

from __future__ import annotations

import pytest
from traindoctor.agent.reading.settings.settings_map import settings_map
from traindoctor.agent.repair.patching.change import change
from traindoctor.agent.repair.patching.spelling import REMOVE

HF = "python train.py --per_device_train_batch_size 4 --output_dir out\n"
PPO = "python -m openrlhf.cli.train_ppo_ray --actor_num_nodes 1 --actor_num_gpus_per_node 8 --vllm_num_engines 2\n"
SFT = "deepspeed --module openrlhf.cli.train_sft --micro_train_batch_size 4 --train_batch_size 64\n"
MEGATRON = "python pretrain_gpt.py --num-layers 2 --hidden-size 8 --micro-batch-size 1"
VERL = "python -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.optim.lr=1e-6"
LIGHTNING = "import lightning as L\ntrainer = L.Trainer(max_epochs=3)\n"
DS = '{"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": %d%s}}\n'
OFFLOADED = ', "offload_param": {"device": "cpu", "pin_memory": true}'
TRAINER = 'from transformers import TrainingArguments\nds = {"zero_optimization": {"stage": 2}}\nTrainingArguments("out", deepspeed=ds)\n'

SOURCED = "source .env\npython train.py --output_dir out --learning_rate ${LR:-5e-5}\n"
NEMO_RL = "policy:\n  megatron_cfg:\n    enabled: false\n    tensor_model_parallel_size: 1\ngrpo:\n  max_num_steps: 9\n"

LEFT = [
    (SOURCED, "a.sh", "hf", {"learning_rate": 1e-5}, "script sources"),
    (NEMO_RL, "a.yaml", "nemo_rl", {"warmup_steps": 200}, "switched off"),
    ("vllm serve m --max-model-len 8\n", "a.sh", "vllm", {"attention_implementation": "sdpa"}, "no word for sdpa"),
    ("step_scheduler:\n  num_epochs: 1\n", "a.yaml", "automodel", {"packing": True}, "a number stands there"),
    (HF, "a.sh", "hf", {"prefetch_factor": 2}, "without worker processes"),
    (HF, "a.sh", "hf", {"persistent_workers": True}, "without worker processes"),
    (HF, "a.sh", "hf", {"attention_implementation": "sdpa"}, "argument of the script"),
    (HF + " --evaluation_strategy steps\n", "a.sh", "hf", {"eval_strategy": "steps"}, "evaluation_strategy"),
    (HF, "a.sh", "hf", {"fsdp_state_dict_type": "SHARDED_STATE_DICT"}, "FSDP"),
    ("trl sft --max_length 8\n", "a.sh", "sft", {"use_vllm": True}, "that generate"),
    ("trl sft --max_length 8 --rdzv_endpoint support\n", "a.sh", "sft", {"kl_coefficient": 0.1}, "reference"),
    ("learning_rate: 1\nbeta: 0.1\n", "dpo.yaml", "trl", {"packing": True}, "SFT trainer"),
    ("from trl import GRPOConfig\nGRPOConfig(beta=0.1)\n", "a.py", "trl", {"sequence_length": 8}, "limit for prompts"),
    (SFT, "a.sh", "openrlhf", {"samples_per_prompt": 8}, "PPO trainer"),
    (SFT, "a.sh", "openrlhf", {"global_batch_size": REMOVE}, "prompts or samples"),
    (f"{MEGATRON} --global-batch-size 64\n", "a.sh", "megatron", {"global_batch_size": REMOVE}, "default takes its place"),
    (f"{MEGATRON} --attention-backend auto\n", "a.sh", "megatron", {"attention_implementation": "sdpa"}, "no word for sdpa"),
    (f"{MEGATRON} --lr-warmup-fraction .01\n", "a.sh", "megatron", {"warmup_steps": 200}, "in another way"),
    (f"{MEGATRON} --num-experts 8\n", "a.sh", "megatron", {"tensor_parallel": 2}, "--sequence-parallel"),
    (f"{MEGATRON}\n", "a.sh", "megatron", {"offload_optimizer": "cpu"}, "precision-aware"),
    (f"{VERL}\n", "a.sh", "verl", {"tensor_parallel": 2}, "Megatron backend"),
    (f"{VERL}\n", "a.sh", "verl", {"checkpoint_strictness": "log_all"}, "backend"),
    (f"{VERL} actor_rollout_ref.actor.kl_loss_coef=0.001\n", "a.sh", "verl", {"kl_coefficient": 0.01}, "no effect"),
    (LIGHTNING, "a.py", "lightning", {"fsdp_state_dict_type": "SHARDED_STATE_DICT"}, "no argument of the Trainer"),
    ("trainer:\n  max_epochs: 3\n", "a.yaml", "lightning", {"fsdp_state_dict_type": "FULL_STATE_DICT"}, "no argument"),
    (DS % (3, OFFLOADED), "ds.json", "deepspeed", {"zero_stage": 2}, "offload_param"),
    (DS % (2, ""), "ds.json", "deepspeed", {"gather_weights_on_save": True}, "stage 3"),
    (DS % (2, ""), "ds.json", "deepspeed", {"gradient_accumulation_steps": 2}, "train_batch_size"),
    (TRAINER, "a.py", "deepspeed", {"gradient_accumulation_steps": 2}, "must not differ"),
    ("n_layer = 2\ngradient_accumulation_steps = 5 * 8\n", "c.py", "nanogpt", {"gradient_accumulation_steps": 20}, "multiple"),
    ("tune run full --config a.yaml optimizer.lr=1\n", "a.sh", "torchtune", {"warmup_steps": 9}, "no `lr_scheduler`"),
    ("base_model: x\nevals_per_epoch: 4\n", "a.yaml", "axolotl", {"eval_steps": 9}, "evals_per_epoch"),
    ("base_model: x\nflash_attention: false\n", "a.yaml", "axolotl", {"attention_implementation": "sdpa"}, "switch of its own"),
    ("model:\n  global_batch_size: 8\ntrainer:\n  accumulate_grad_batches: 1\n", "a.yaml", "nemo",
     {"gradient_accumulation_steps": 2}, "NeMo"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "file", "framework", "edit", "reason"), LEFT)
def test_left_to_the_hand_with_the_reason(text, file, framework, edit, reason):
    got = change(text, file, edit, framework)
    assert got.text == text and not got.edits and len(got.snippets) == 1 and reason in got.snippets[0].reason


UNSLOTH = "from unsloth import FastLanguageModel\nm = FastLanguageModel.from_pretrained('x', dtype=None)\n"

MADE = [
    (UNSLOTH + "SFTConfig(fp16=True, bf16=False)\n", "a.py", "unsloth", {"precision": "bf16"},
     "dtype=None)\nSFTConfig(fp16=False, bf16=True)"),
    (NEMO_RL, "a.yaml", "nemo_rl", {"packing": True}, "  sequence_packing:\n    enabled: true\n"),
    (HF.replace("\n", " --dataloader_num_workers 4\n"), "a.sh", "hf", {"prefetch_factor": 2}, "--dataloader_prefetch_factor 2"),
    (SFT, "a.sh", "openrlhf", {"learning_rate": 1e-6}, " --learning_rate 1e-6"),
    (PPO, "a.sh", "openrlhf", {"learning_rate": 1e-6}, "--actor_learning_rate 1e-6"),
    (f"{MEGATRON} --attention-backend auto\n", "a.sh", "megatron", {"attention_implementation": "flash_attention_2"},
     "--attention-backend flash\n"),
    (f"{VERL}\n", "a.sh", "verl", {"attention_implementation": "sdpa"},
     " ++actor_rollout_ref.model.override_config.attn_implementation=sdpa"),
    (f"{VERL} actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2\n", "a.sh", "verl", {"offload_optimizer": "cpu"},
     "actor_rollout_ref.actor.megatron.optimizer_offload=True"),
    (f"{VERL} actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001\n", "a.sh", "verl",
     {"kl_coefficient": 0.01}, "kl_loss_coef=0.01"),
    ('[checkpoint]\nasync_mode = "disabled"\n', "a.toml", "torchtitan", {"async_save": True}, 'async_mode = "async"'),
    (LIGHTNING, "a.py", "lightning", {"debug": "underflow_overflow"}, "detect_anomaly=True"),
    (DS % (3, OFFLOADED), "ds.json", "deepspeed", {"offload_parameters": REMOVE}, '{"device": "none", "pin_memory": true}'),
    ("n_layer = 2\ngradient_accumulation_steps = 5 * 8\n", "c.py", "nanogpt", {"gradient_accumulation_steps": 80}, "= 80\n"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "file", "framework", "edit", "written"), MADE)
def test_written_where_the_condition_holds(text, file, framework, edit, written):
    got = change(text, file, edit, framework)
    assert not got.snippets and written in got.text
    again = change(got.text, file, edit, framework)
    assert again.text == got.text


@pytest.mark.parametrize(
    "text", [PPO, "python train.py --colocate_all_models --actor_learning_rate 1 --advantage_estimator gae\n"]
)
def test_a_launch_of_openrlhf_is_none_of_slime_or_megatron(text):
    keys = [w[2:] for w in text.split() if w.startswith("--")]
    assert settings_map().detect(keys, text) == "openrlhf"
