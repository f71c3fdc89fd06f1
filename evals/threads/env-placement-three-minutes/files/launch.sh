export SKYRL_RAY_PG_TIMEOUT_IN_S=900
export WANDB_MODE=offline
uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base \
  trainer.algorithm.advantage_estimator=grpo trainer.placement.policy_num_nodes=4 \
  trainer.placement.policy_num_gpus_per_node=8 generator.num_inference_engines=16
