#!/bin/bash
# nightly character model, restarts by itself
set -u
cd "$(dirname "$0")"
export OMP_NUM_THREADS=1 TORCH_CPP_LOG_LEVEL=ERROR
for attempt in 1 2 3; do
  echo "=== $(date '+%F %T') attempt $attempt of 3" >> train.log
  torchrun --nproc-per-node 3 --master-port 29744 --log-dir logs --tee 3 train.py --name nightly-0417 \
    --width 48 --heads 4 --steps 2000 --pause 0.01 >> train.log 2>&1 && exit 0
done
exit 1
