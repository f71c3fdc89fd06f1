#!/bin/bash
export OMP_NUM_THREADS=1 TORCH_FR_BUFFER_SIZE=500 TORCH_CPP_LOG_LEVEL=ERROR MASTER_ADDR=localhost MASTER_PORT=29814 WORLD_SIZE=3
for RANK in 0 1 2; do
  RANK=$RANK LOCAL_RANK=$RANK python train.py --steps 4000 --pause 0.02 --recall-every 100000 > out_$RANK.txt 2>&1 &
done
wait
