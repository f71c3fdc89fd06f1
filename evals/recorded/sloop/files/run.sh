#!/bin/bash
export OMP_NUM_THREADS=1
exec torchrun --nproc-per-node 2 --master-port 29767 train.py --epochs 4 --batch_size 32 --lr 2e-3 > train.log 2>&1
