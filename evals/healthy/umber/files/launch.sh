#!/bin/bash
export MLFLOW_ALLOW_FILE_STORE=true MLFLOW_TRACKING_URI=file:./mlruns
python train.py --output_dir out --use_cpu --save_strategy no --report_to mlflow --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 2 --learning_rate 5e-3 --logging_steps 5 > train.log 2>&1
