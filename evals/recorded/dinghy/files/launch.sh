#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 4 --master-port 29746 --log-dir logs --redirects 3 train.py > launcher.log 2>&1
