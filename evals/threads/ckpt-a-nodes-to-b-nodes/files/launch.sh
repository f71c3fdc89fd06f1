python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    actor_rollout_ref.model.path=/models/base-7b \
    actor_rollout_ref.actor.fsdp_config.param_offload=False \
    trainer.nnodes=2 trainer.n_gpus_per_node=8 \
    trainer.resume_mode=resume_path \
    trainer.resume_from_path=/data/exp/grpo/global_step_120 \
    trainer.default_local_dir=/data/exp/grpo
