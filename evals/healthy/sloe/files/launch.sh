#!/bin/bash
python train.py --output_dir out --use_cpu --save_strategy no --report_to none --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 3 --learning_rate 3e-3 --label_smoothing_factor 0.1 --lr_scheduler_type constant --optim adafactor --logging_steps 5 > train.log 2>&1
