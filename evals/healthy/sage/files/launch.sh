#!/bin/bash
torchrun --standalone --nproc-per-node 2 train.py --output_dir out --use_cpu --save_strategy no --report_to none --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --rows 3200 --num_train_epochs 2 --learning_rate 5e-3 --logging_steps 5 --ddp_backend gloo > train.log 2>&1
