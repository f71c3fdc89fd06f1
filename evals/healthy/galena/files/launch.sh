#!/bin/bash
python train.py --kind masked --output_dir out --use_cpu --save_strategy no --report_to none --bf16 --max_grad_norm 0.3 --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 4 --learning_rate 2e-3 --logging_steps 10 --dataloader_num_workers 2 > train.log 2>&1
