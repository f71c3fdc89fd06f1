#!/bin/bash
HOSTFILE=/job/hostfile
deepspeed --hostfile $HOSTFILE --num_nodes 2 --num_gpus 8 --master_port 29500 \
    finetune.py --model_name_or_path bigscience/bloom-7b1 --per_device_train_batch_size 1 \
    --learning_rate 2e-5 --deepspeed configs/zero3.json --output_dir out 2>&1 | tee train.log
