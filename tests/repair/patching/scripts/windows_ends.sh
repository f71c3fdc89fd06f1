#!/bin/bash
export OMP_NUM_THREADS=4
python train.py \
  --learning_rate 1e-4 \
  --per_device_train_batch_size 8
