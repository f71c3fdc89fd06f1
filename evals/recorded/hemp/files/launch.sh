#!/bin/bash
export OMP_NUM_THREADS=1 TORCH_FR_BUFFER_SIZE=2000
torchrun --nproc-per-node 3 --master-port 29812 train.py --steps 600 --pause 0.02 > launcher.log 2>&1
