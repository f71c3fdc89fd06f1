#!/usr/bin/env bash
set -euo pipefail

export WANDB_PROJECT=clm
export HF_HOME=/data/hf TOKENIZERS_PARALLELISM=false
MODEL=${1:-meta-llama/Llama-3.1-8B}
BS=8
LR=2e-5

python prepare_data.py --input raw/ --output data/tok --max_seq_length 2048 --learning_rate 0

CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc_per_node=4 --master_port=29501 examples/pytorch/language-modeling/run_clm.py \
  --model_name_or_path "$MODEL" \
  --dataset_name wikitext --dataset_config_name wikitext-2-raw-v1 \
  --per_device_train_batch_size $BS \
  --per_device_eval_batch_size $BS \
  --gradient_accumulation_steps 4 \
  --learning_rate $LR \
  --num_train_epochs 3 \
  --fp16 \
  --do_train --do_eval \
  --output_dir "out/bs${BS}_lr${LR}"

python eval.py --ckpt "out/bs${BS}_lr${LR}" --per_device_eval_batch_size 16
