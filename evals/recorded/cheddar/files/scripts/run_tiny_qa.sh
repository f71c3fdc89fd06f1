#!/bin/bash
# From scratch on a laptop, half a minute.
set -e
OUT=out/tiny-qa
mkdir -p $OUT
python run_clm.py \
  --config_name configs/models/tiny.json \
  --template qa \
  --do_train --do_eval \
  --num_train_epochs 3 \
  --max_steps 300 \
  --per_device_train_batch_size 16 \
  --learning_rate 4e-3 \
  --lr_scheduler_type cosine \
  --warmup_steps 20 \
  --logging_steps 10 \
  --eval_strategy steps --eval_steps 100 \
  --save_strategy no \
  --report_to none \
  --disable_tqdm True \
  --use_cpu True \
  --output_dir $OUT > $OUT/run.log 2>&1
