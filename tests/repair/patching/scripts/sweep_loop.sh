#!/bin/bash
for lr in 1e-5 3e-5 1e-4; do
  for seed in 1 2 3; do
    python train.py --learning_rate $lr --seed $seed --per_device_train_batch_size 8 \
      --output_dir "runs/lr${lr}_s${seed}" || exit 1
  done
done
