#!/bin/bash
LR=1e-4
train() {
  local tag=$1; shift
  torchrun --nproc_per_node 8 train.py --learning_rate "$LR" --run_name "$tag" "$@"
}
train baseline
train clip --max_grad_norm 0.5
