#!/bin/bash
set -eo pipefail
ARGS="--model_name_or_path /models/qwen --learning_rate 1e-5 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 --bf16 True --output_dir out"
if [ "${NNODES:-1}" -gt 1 ]; then
    torchrun --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --nproc_per_node 8 train.py $ARGS
else
    torchrun --standalone --nproc_per_node 8 train.py $ARGS
fi
