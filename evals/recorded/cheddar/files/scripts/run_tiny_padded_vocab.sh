#!/bin/bash
# The embedding has the size of the big models', so that heads can be swapped later.
set -e
. scripts/site.sh
OUT=out/tiny-padded-vocab
mkdir -p $OUT
python run_clm.py \
  --config_name configs/models/tiny_narrow.json \
  --vocab_size 32768 \
  --template qa \
  --do_train --do_eval \
  --eval_file data/handbook_long.jsonl \
  --max_steps 60 \
  --per_device_train_batch_size 8 \
  --per_device_eval_batch_size 16 \
  --learning_rate 4e-3 \
  --warmup_steps 10 \
  --logging_steps 5 \
  --eval_strategy steps --eval_steps 40 \
  --save_strategy no \
  --report_to none \
  --disable_tqdm True \
  --use_cpu True \
  --output_dir $OUT > $OUT/run.log 2>&1
