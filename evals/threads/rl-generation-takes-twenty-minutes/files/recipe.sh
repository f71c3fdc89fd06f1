python3 -m verl.trainer.main_ppo \
  algorithm.adv_estimator=grpo data.train_batch_size=32 actor_rollout_ref.rollout.n=8 \
  actor_rollout_ref.model.path=/models/Qwen3-8B \
  actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.mode=async \
  actor_rollout_ref.rollout.tensor_model_parallel_size=2 \
  actor_rollout_ref.rollout.multi_turn.enable=True actor_rollout_ref.rollout.multi_turn.max_assistant_turns=40 \
  actor_rollout_ref.rollout.max_num_seqs=64 actor_rollout_ref.rollout.gpu_memory_utilization=0.6 \
  actor_rollout_ref.rollout.agent.num_workers=8 \
  trainer.n_gpus_per_node=8 trainer.nnodes=1
