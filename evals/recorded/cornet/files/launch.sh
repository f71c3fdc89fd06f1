#!/bin/bash
export OMP_NUM_THREADS=1 METRICS_PORT=9417
torchrun --nnodes 1 --nproc-per-node 2 --master-port 29721 --max-restarts 1 train.py > train.log 2>&1
