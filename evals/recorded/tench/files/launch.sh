#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 1 --master-port 29788 train.py --hidden 128 --steps 120 --load ckpt/week1 --save ckpt/week2 > week2.log 2>&1
