set -x
python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo \
  data.train_files=/data/dapo-math-17k.parquet \
  data.train_batch_size=64 \
  data.max_prompt_length=1024 \
  data.max_response_length=8192 \
  actor_rollout_ref.model.path=/models/Qwen3-4B-Base \
  actor_rollout_ref.rollout.name=sglang \
  actor_rollout_ref.rollout.n=4 \
  actor_rollout_ref.actor.optim.lr=1e-6 \
  reward_model.reward_manager=naive \
  trainer.n_gpus_per_node=4 trainer.nnodes=1 trainer.total_epochs=1
