#!/bin/bash
accelerate launch --config_file configs/accelerate/fsdp.yaml run_clm.py \
  --model_name_or_path meta-llama/Llama-3.1-8B --template chat --max_length 8192 \
  --do_train --max_steps 2000 --per_device_train_batch_size 1 --gradient_accumulation_steps 16 \
  --learning_rate 2e-5 --lr_scheduler_type linear --warmup_steps 100 --bf16 --torch_compile \
  --save_steps 200 --save_only_model True --output_dir out/llama-8b
