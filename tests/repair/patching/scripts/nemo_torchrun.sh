torchrun --nproc_per_node=8 \
/opt/NeMo/examples/nlp/language_modeling/tuning/megatron_gpt_finetuning.py \
    trainer.precision=16 \
    trainer.devices=8 \
    trainer.num_nodes=1 \
    trainer.gradient_clip_val=1.0 \
    model.restore_from_path=${MODEL} \
    model.micro_batch_size=1 \
    model.global_batch_size=128 \
    model.optim.name=distributed_fused_adam \
    model.optim.lr=5e-6 \
    model.optim.sched.warmup_steps=50 \
    +model.tp_comm_overlap_ag=False \
    ++cluster_type=BCP
