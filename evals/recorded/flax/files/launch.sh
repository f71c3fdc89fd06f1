#!/bin/bash
export OMP_NUM_THREADS=1 TORCH_FR_BUFFER_SIZE=2000
torchrun --nproc-per-node 4 --master-port 29811 train.py --steps 400 > launcher.log 2>&1
