#!/bin/bash
export OMP_NUM_THREADS=1
torchrun --nproc-per-node 2 --master-port 29743 --log-dir logs --redirects 3 train.py --config config.yaml > launcher.log 2>&1
