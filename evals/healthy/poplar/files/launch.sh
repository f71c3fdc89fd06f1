#!/bin/bash
python train.py --output_dir out --use_cpu --report_to none --save_steps 60 --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --rows 1600 --num_train_epochs 1 --max_steps 60 --learning_rate 3e-3 --lr_scheduler_type constant --logging_steps 5 > first.log 2>&1
python train.py --resume --output_dir out --use_cpu --report_to none --save_steps 60 --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --rows 1600 --max_steps 180 --learning_rate 3e-3 --lr_scheduler_type constant --logging_steps 5 > second.log 2>&1
