#!/bin/bash
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
export NCCL_TIMEOUT=3600
export CUDA_VISIBLE_DEVICES=0,1,2,3
torchrun --nproc_per_node 8 train.py \
  --model_name_or_path Qwen/Qwen2.5-7B \
  --deepspeed ds_config.json \
  --train_file data/train.jsonl \
  --per_device_train_batch_size 4 \
  --max_seq_length 4096 \
  --learning_rate 2e-5 \
  --warmup_ratio 0.03 \
  --bf16 True \
  --output_dir out
