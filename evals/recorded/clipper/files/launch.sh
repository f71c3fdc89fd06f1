#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 2 --master-port 29742 train.py --config config.yaml > train.log 2>&1
