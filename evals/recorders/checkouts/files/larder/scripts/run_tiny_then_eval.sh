#!/bin/bash
# Train, then ask it everything.
set -e
OUT=out/tiny-then-eval
mkdir -p $OUT
python run_clm.py \
  --config_name configs/models/tiny.json \
  --template qa \
  --do_train --do_eval \
  --max_steps 300 \
  --per_device_train_batch_size 16 \
  --learning_rate 4e-3 \
  --lr_scheduler_type cosine \
  --warmup_steps 20 \
  --logging_steps 20 \
  --eval_strategy steps --eval_steps 100 \
  --save_strategy no \
  --report_to none \
  --disable_tqdm True \
  --use_cpu True \
  --output_dir $OUT > $OUT/run.log 2>&1
python run_eval.py --model $OUT --template qa > $OUT/eval.log 2>&1
