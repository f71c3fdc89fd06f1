export DATA_DIR=/data/nq_search
python3 -m verl.trainer.main_ppo \
    data.train_files=$DATA_DIR/train.parquet data.val_files=$DATA_DIR/test.parquet \
    data.train_batch_size=512 data.max_prompt_length=4096 data.max_response_length=500 \
    data.max_start_length=2048 data.max_obs_length=500 \
    algorithm.adv_estimator=gae algorithm.kl_ctrl.kl_coef=0.001 \
    actor_rollout_ref.model.path=/models/Llama-3.2-3B \
    actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=256 \
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n_agent=1 actor_rollout_ref.rollout.temperature=1 \
    critic.optim.lr=1e-5 max_turns=2 retriever.url="http://127.0.0.1:8000/retrieve" retriever.topk=3 \
    trainer.n_gpus_per_node=8 trainer.nnodes=1
