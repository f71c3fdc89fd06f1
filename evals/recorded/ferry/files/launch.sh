#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 2 --master-port 29747 train.py > train.log 2>&1
