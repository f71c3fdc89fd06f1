#!/bin/bash
python train.py --output_dir out --use_cpu --save_strategy no --report_to none --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 3 --learning_rate 5e-3 --logging_steps 10 --eval_strategy epoch --predict_with_generate --generation_max_length 12 > train.log 2>&1
