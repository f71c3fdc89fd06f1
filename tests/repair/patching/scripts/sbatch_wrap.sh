#!/bin/bash
sbatch --nodes=1 --gres=gpu:8 --time=12:00:00 --job-name=sft \
  --wrap="srun python train_sft.py --learning_rate 1e-5 --per_device_train_batch_size 4 --bf16 True"
