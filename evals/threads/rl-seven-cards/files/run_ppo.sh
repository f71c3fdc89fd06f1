set -x
read -r -d '' training_commands <<EOF
openrlhf.cli.train_ppo \
  --pretrain /models/Llama-2-7b-sft-ocra-500k \
  --reward_pretrain /models/Llama-2-7b-rm-anthropic_hh \
  --save_path ./ckpt/7b_llama \
  --save_steps -1 \
  --logging_steps 1 \
  --eval_steps -1 \
  --micro_train_batch_size 2 \
  --train_batch_size 256 \
  --micro_rollout_batch_size 4 \
  --rollout_batch_size 1024 \
  --max_epochs 1 \
  --prompt_max_len 1024 \
  --generate_max_len 1024 \
  --zero_stage 2 \
  --bf16 \
  --actor_learning_rate 5e-7 \
  --critic_learning_rate 9e-6 \
  --init_kl_coef 0.01 \
  --prompt_data Open-Orca/OpenOrca,Dahoas/full-hh-rlhf \
  --normalize_reward \
  --actor_init_on_gpu \
  --flash_attn \
  --gradient_checkpointing
EOF
deepspeed --include localhost:0,1,2,3,4,5,6 --module $training_commands
