#!/bin/bash
export NCCL_NET=IB
export NCCL_P2P_DISABLE=1
deepspeed --num_gpus 3 src/train_bash.py --deepspeed ds_z3_config.json --stage sft --do_train \
    --model_name_or_path /data/Meta-Llama-3-8B-Instruct --dataset qa --template default \
    --finetuning_type lora --lora_target q_proj,v_proj --cutoff_len 1024 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 2 --lr_scheduler_type cosine \
    --logging_steps 1 --warmup_steps 20 --learning_rate 5e-5 --num_train_epochs 3.0 --fp16
