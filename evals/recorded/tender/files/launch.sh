#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 2 --master-port 29769 train.py --seed 13 --epochs 12 --sentences 3200 > train.log 2>&1
