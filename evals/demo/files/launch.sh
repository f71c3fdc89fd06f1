#!/bin/bash
# 1.3B pretraining, one node
export NCCL_DEBUG=WARN
export OMP_NUM_THREADS=1
torchrun --standalone --nproc_per_node 8 --log-dir logs pretrain.py \
  --config train.yaml --resume checkpoints/step-4100
