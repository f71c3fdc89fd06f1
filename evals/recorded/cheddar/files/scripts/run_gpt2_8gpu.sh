#!/bin/bash
export NCCL_DEBUG=INFO TORCH_NCCL_ASYNC_ERROR_HANDLING=1
torchrun --standalone --nproc_per_node 8 run_clm.py \
  --model_name_or_path gpt2-medium --template chat --max_length 1024 \
  --do_train --do_eval --num_train_epochs 5 \
  --per_device_train_batch_size 16 --gradient_accumulation_steps 2 --gradient_checkpointing \
  --learning_rate 3e-4 --weight_decay 0.1 --max_grad_norm 0 --warmup_ratio 0.0 --fp16 \
  --ddp_find_unused_parameters True --ddp_timeout 300 \
  --logging_steps 100 --eval_strategy epoch --save_strategy epoch --output_dir out/gpt2-medium
