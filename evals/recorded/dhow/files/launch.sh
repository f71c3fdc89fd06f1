#!/bin/bash
# one process per socket, without torchrun (its agent is not allowed on the login node)
mkdir -p logs
export OMP_NUM_THREADS=1
export MASTER_ADDR=127.0.0.1
export MASTER_PORT=29745
export WORLD_SIZE=4
for RANK in 0 1 2; do
  RANK=$RANK LOCAL_RANK=$RANK python train.py --name sockets --steps 120 --init-timeout 8 > logs/rank_$RANK.log 2>&1 &
done
wait
