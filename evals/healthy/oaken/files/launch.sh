#!/bin/bash
python train.py --output_dir out --use_cpu --save_strategy no --report_to none --kind masked --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 5 --learning_rate 3e-3 --logging_steps 10 --do_eval --eval_strategy epoch > train.log 2>&1
