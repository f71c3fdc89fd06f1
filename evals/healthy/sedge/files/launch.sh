#!/bin/bash
python train.py --output_dir out --use_cpu --save_strategy no --report_to none --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --max_steps 20 --learning_rate 1e-3 --warmup_steps 10 --logging_steps 5 > train.log 2>&1
