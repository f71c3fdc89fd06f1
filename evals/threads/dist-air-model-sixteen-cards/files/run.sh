NNODES=4 NPROC_PER_NODE=8 megatron sft \
    --load ZhipuAI/GLM-4.5-Air-Base-mcore --tensor_model_parallel_size 8 --pipeline_model_parallel_size 4 \
    --context_parallel_size 1 --expert_tensor_parallel_size 1 --expert_model_parallel_size 16 \
    --micro_batch_size 2 --global_batch_size 16 --packing true --sequence_parallel true --attention_backend flash
