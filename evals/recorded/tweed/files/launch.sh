#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 2 --master-port 29611 --log-dir logs --redirects 3 train.py --steps 120 > launcher.log 2>&1
