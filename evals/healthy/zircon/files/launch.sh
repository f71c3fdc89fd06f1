#!/bin/bash
python train.py --output_dir out --use_cpu --save_strategy no --report_to none --disable_tqdm True --per_device_train_batch_size 16 --per_device_eval_batch_size 32 --num_train_epochs 2 --learning_rate 2e-3 --lr_scheduler_type constant_with_warmup --warmup_steps 30 --logging_strategy epoch --do_eval --eval_strategy epoch > slurm-881.out 2>&1
