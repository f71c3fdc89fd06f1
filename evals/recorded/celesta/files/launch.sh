#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29741 WORLD_SIZE=4 OMP_NUM_THREADS=1
mkdir -p logs
for RANK in 0 1 2 3; do
  RANK=$RANK python train.py > logs/rank_$RANK.log 2>&1 &
done
wait
