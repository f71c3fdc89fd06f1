#!/bin/bash
python train.py --output_dir out --use_cpu --report_to none --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 20 --learning_rate 4e-3 --logging_steps 10 --eval_strategy epoch --save_strategy epoch --save_total_limit 1 --load_best_model_at_end True --metric_for_best_model eval_loss > train.log 2>&1
