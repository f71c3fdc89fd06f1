#!/bin/bash
export MASTER_ADDR=127.0.0.1 MASTER_PORT=29711 WORLD_SIZE=4 OMP_NUM_THREADS=1
mkdir -p logs
for RANK in 0 1 2 3; do
  RANK=$RANK python train.py > logs/rank_$RANK.log 2>&1 &
done
wait -n
wait
grep -h -A1 Error logs/rank_0.log | tail -n 3 > summary.txt
exit 1
