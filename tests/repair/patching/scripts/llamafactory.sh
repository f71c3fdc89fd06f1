#!/bin/bash
NPROC_PER_NODE=4
NNODES=1
RANK=0
export DISABLE_VERSION_CHECK=1
FORCE_TORCHRUN=1 llamafactory-cli train \
    --stage sft --do_train True \
    --model_name_or_path /models/Qwen2.5-7B-Instruct \
    --dataset alpaca_zh --template qwen --finetuning_type lora --lora_target all \
    --cutoff_len 2048 --per_device_train_batch_size 2 --gradient_accumulation_steps 8 \
    --learning_rate 5e-05 --num_train_epochs 3.0 --warmup_steps 0 --fp16 True \
    --output_dir saves/qwen/lora
