#!/bin/bash
LR=1e-5
cat <<EOF > ds_config.json
{
  "train_micro_batch_size_per_gpu": 1,
  "zero_optimization": {"stage": 3},
  "optimizer": {"type": "Adam", "params": {"lr": $LR}}
}
EOF
NCCL_DEBUG=INFO deepspeed --num_gpus 8 train.py --deepspeed ds_config.json
