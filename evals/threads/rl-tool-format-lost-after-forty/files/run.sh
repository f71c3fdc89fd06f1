export DATA_DIR=/data/rlla_4k
python3 -m verl.trainer.main_ppo \
    algorithm.adv_estimator=grpo \
    data.train_files=$DATA_DIR/train.parquet data.val_files=$DATA_DIR/test.parquet \
    data.train_batch_size=512 data.max_prompt_length=2048 data.max_response_length=1024 \
    actor_rollout_ref.model.path=/models/Qwen2.5-3B-Instruct \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.actor.ppo_mini_batch_size=128 \
    actor_rollout_ref.actor.use_kl_loss=True \
    actor_rollout_ref.actor.kl_loss_coef=0.001 \
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n=4 \
    trainer.n_gpus_per_node=4 trainer.nnodes=1 trainer.total_epochs=15
